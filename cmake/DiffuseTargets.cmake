# diffuse_library(NAME SOURCES... [PUBLIC_LIBS ...] [PRIVATE_LIBS ...] [COLD] [UNITY]): a static library of one folder, with the project's
# warnings. COLD: no time is spent there at run time, so none is spent on optimising it. UNITY: its files can be compiled several at once
# (DIFFUSE_UNITY); none of their unnamed namespaces may then say the same name twice.
# diffuse_test(NAME SOURCES... [LIBS ...] [PREFIX ...] [ENVIRONMENT NAME=VALUE] [THREADS] [THREADS_OF FILTER] [MEMORY] [UNITY]): a GoogleTest
# executable whose cases CTest knows one by one; with THREADS its cases run under the thread sanitizer too (with THREADS_OF those alone that the
# filter names), with MEMORY under the address and undefined-behaviour ones: labels "threads" and "memory", targets thread_tests and memory_tests.
# There CTest knows parts of the executable, each of many cases.

# PROCESSORS of a test are thirds of a core: scripts/test.sh starts three a core at once. Most tests keep a core busy; those that start
# programs and wait for what becomes of them take less, and run beside the others; those with deadlines take a whole one, so that
# only as many of them as there are cores start programs at once.
set(DIFFUSE_CORE 3)

add_library(diffuse_options INTERFACE)
target_include_directories(diffuse_options INTERFACE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
# GCC 12 reports -Wrestrict for plain string concatenation (its bug 105651).
# Contraction would let the compiler fuse a multiplication and an addition where another target does not: other bits.
target_compile_options(diffuse_options INTERFACE -Wall -Wextra -Wshadow -Wno-restrict -ffp-contract=off)
if(DIFFUSE_WERROR)
  target_compile_options(diffuse_options INTERFACE -Werror)
endif()
if(DIFFUSE_SANITIZE)
  # What sanitizers add to the code misleads the warnings about sizes.
  target_compile_options(diffuse_options INTERFACE -Wno-stringop-overflow)
  target_compile_options(diffuse_options INTERFACE -fsanitize=${DIFFUSE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(diffuse_options INTERFACE -fsanitize=${DIFFUSE_SANITIZE})
endif()

function(diffuse_unity name wanted)
  if(DIFFUSE_UNITY AND wanted)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
  endif()
endfunction()

function(diffuse_library name)
  cmake_parse_arguments(A "COLD;UNITY" "" "SOURCES;PUBLIC_LIBS;PRIVATE_LIBS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  if(A_COLD)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    if(DIFFUSE_SANITIZE)
      target_compile_options(${name} PRIVATE -O0)
    endif()
  endif()
  diffuse_unity(${name} "${A_UNITY}")
  target_link_libraries(${name} PUBLIC diffuse_options ${A_PUBLIC_LIBS} PRIVATE ${A_PRIVATE_LIBS})
endfunction()

# What the tests read most, read once for all of them, where many files are compiled at once.
function(diffuse_test_headers name)
  if(NOT DIFFUSE_UNITY)
    return()
  endif()
  if(NOT TARGET diffuse_test_headers)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/diffuse_test_headers.cpp CONTENT "")
    add_library(diffuse_test_headers OBJECT ${PROJECT_BINARY_DIR}/diffuse_test_headers.cpp)
    target_link_libraries(diffuse_test_headers PRIVATE diffuse_options nlohmann_json::nlohmann_json GTest::gmock GTest::gtest)
    diffuse_test_options(diffuse_test_headers)
    target_precompile_headers(diffuse_test_headers PRIVATE
      <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp> <algorithm> <chrono> <filesystem> <fstream> <functional> <map> <memory> <mutex>
      <optional> <random> <set> <span> <sstream> <string> <thread> <variant> <vector>)
  endif()
  target_precompile_headers(${name} REUSE_FROM diffuse_test_headers)
endfunction()

# What is tested is optimised in its library; the tests' own code takes half as long to compile so.
function(diffuse_test_options name)
  target_compile_definitions(${name} PRIVATE DIFFUSE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(DIFFUSE_SANITIZE)
    target_compile_options(${name} PRIVATE -O0)
  endif()
endfunction()

# Of the program over CUDA: not built with the rest where it only stands beside it.
function(diffuse_beside name)
  if(NOT DIFFUSE_CUDA)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

# Under sanitizers a test is a part of an executable's cases, not a case: they share what is read from disk and what it costs to start.
function(diffuse_sanitized_tests name label filter environment)
  set(parts 4)
  foreach(part RANGE 1 ${parts})
    math(EXPR index "${part} - 1")
    set(test ${name}.${label}.${part}_of_${parts})
    add_test(NAME ${test} COMMAND ${name} --gtest_filter=${filter})
    set_tests_properties(${test} PROPERTIES LABELS ${label} PROCESSORS ${DIFFUSE_CORE}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${index};${environment}")
  endforeach()
endfunction()

function(diffuse_test name)
  cmake_parse_arguments(A "THREADS;MEMORY;UNITY" "PREFIX;ENVIRONMENT;THREADS_OF" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  diffuse_unity(${name} "${A_UNITY}")
  target_link_libraries(${name} PRIVATE diffuse_options ${A_LIBS} GTest::gmock GTest::gtest_main)
  diffuse_test_options(${name})
  diffuse_test_headers(${name})
  set(labels "")
  if(A_MEMORY)
    list(APPEND labels memory)
    add_dependencies(memory_tests ${name})
  endif()
  if(A_THREADS OR A_THREADS_OF)
    add_dependencies(thread_tests ${name})
  endif()
  if(DIFFUSE_SANITIZE)
    if(A_MEMORY)
      diffuse_sanitized_tests(${name} memory "*" "${A_ENVIRONMENT}")
    endif()
    if(A_THREADS)
      diffuse_sanitized_tests(${name} threads "*" "${A_ENVIRONMENT}")
    elseif(A_THREADS_OF)
      diffuse_sanitized_tests(${name} threads "${A_THREADS_OF}" "${A_ENVIRONMENT}")
    endif()
    if(A_MEMORY OR A_THREADS OR A_THREADS_OF)
      return()
    endif()
  endif()
  set(properties PROCESSORS ${DIFFUSE_CORE})
  if(A_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${A_ENVIRONMENT}")
  endif()
  set(filter "")
  if(A_THREADS_OF)
    # Discovery knows one set of labels a call, and one list of tests.
    set(others ${properties})
    if(labels)
      list(JOIN labels "_" label)
      list(APPEND others LABELS "${label}")
    endif()
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_PREFIX "${A_PREFIX}" TEST_LIST ${name}_OTHER_TESTS TEST_FILTER "-${A_THREADS_OF}"
                         PROPERTIES ${others})
    set(filter TEST_FILTER "${A_THREADS_OF}")
  endif()
  if(A_THREADS OR A_THREADS_OF)
    list(APPEND labels threads)
  endif()
  # One label a name: discovery hands the properties on as a plain list.
  if(labels)
    list(JOIN labels "_" label)
    list(APPEND properties LABELS "${label}")
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_PREFIX "${A_PREFIX}" ${filter} PROPERTIES ${properties})
endfunction()

# diffuse_mpi_test(NAME BINARY ranks...): runs a GoogleTest binary with its own MPI main over each of the rank counts.
function(diffuse_mpi_test name binary)
  foreach(ranks ${ARGN})
    add_test(NAME ${name}.${ranks}_ranks
             COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} --oversubscribe $<TARGET_FILE:${binary}>)
    set_tests_properties(${name}.${ranks}_ranks PROPERTIES
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1"
      PROCESSORS ${ranks} TIMEOUT 300)
  endforeach()
endfunction()
