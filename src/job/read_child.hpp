#pragma once
// Reading HDF5 files in a child process. HDF5 1.10 crashes on malformed files, and a job file is a
// stranger's: so the program starts itself again with the hidden command
//     __read-h5 KIND PATH DATA_BYTES CPU_SECONDS
// and that process opens the file, checks it and hands back flat, checksummed bytes. Whatever happens to it,
// the caller gets a value or an Error.
//
// Every executable that calls read_job or read_result has to hand this command on, first thing in main,
// before MPI is initialised:
//     if (diffuse::is_read_h5_command(argc, argv)) return diffuse::read_h5_child(argc, argv);
// Test programs take tests/job/main.cpp as their main. Where an executable does not, reading ends with an
// internal error that says so; it cannot start itself over and over.

namespace diffuse {

bool is_read_h5_command(int argc, char** argv);

// The child's whole life. Never returns to code that runs exit handlers: it ends the process itself once the
// answer is written (HDF5 may have left its own state broken). Returns 2 for a command line that is not its
// own.
int read_h5_child(int argc, char** argv);

}  // namespace diffuse
