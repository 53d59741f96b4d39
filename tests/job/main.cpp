// The main of every test program that reads job or result files: such a program is started again as the
// process that reads them (job/read_child.hpp).

#include <gtest/gtest.h>

#include "job/read_child.hpp"

int main(int argc, char** argv) {
  if (diffuse::is_read_h5_command(argc, argv)) return diffuse::read_h5_child(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
