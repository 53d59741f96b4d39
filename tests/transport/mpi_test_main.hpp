#pragma once
// The session that main opened before the first case.

#include "transport/mpi.hpp"

namespace diffuse {

MpiSession& test_session();

}  // namespace diffuse
