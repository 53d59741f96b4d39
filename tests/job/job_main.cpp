// The main of this folder's tests: besides what main.cpp does, children that misbehave on purpose.

#include <gtest/gtest.h>

#include "job/read_child.hpp"
#include "tests/job/test_child.hpp"

int main(int argc, char** argv) {
  if (diffuse::is_read_h5_command(argc, argv)) return diffuse::read_h5_child(argc, argv);
  if (diffuse::test::is_test_child(argc, argv)) return diffuse::test::run_test_child(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
