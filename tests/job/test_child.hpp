#pragma once
// Processes that tests start, to see what becomes of the one that started them.

namespace diffuse::test {

bool is_test_child(int argc, char** argv);

// argv: NAME __test-child BEHAVIOUR [PATH]
int run_test_child(int argc, char** argv);

}  // namespace diffuse::test
