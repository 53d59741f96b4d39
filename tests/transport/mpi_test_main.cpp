// GoogleTest over MPI ranks: every rank runs every case, rank 0 prints all of it and the others their
// failures.

#include "mpi_test_main.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

namespace diffuse {
namespace {

MpiSession* session = nullptr;

class FailuresOnly final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "[rank %d] %s:%d: %s\n", session->rank(),
                   result.file_name() ? result.file_name() : "?", result.line_number(), result.message());
  }
};

}  // namespace

MpiSession& test_session() {
  return *session;
}

}  // namespace diffuse

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  diffuse::MpiSession opened(std::chrono::seconds(60));
  diffuse::session = &opened;
  if (opened.rank() > 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new diffuse::FailuresOnly);
  }
  const int failed = RUN_ALL_TESTS();
  // A rank that failed a case may have left the others in the middle of an exchange.
  if (failed != 0) opened.abort_all(diffuse::ExitCode::difference, "");
  diffuse::make_mpi_transport(opened)->close();  // the others may still fail
  return 0;
}
