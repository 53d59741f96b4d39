import sys, h5py
with h5py.File(sys.argv[1] if len(sys.argv) > 1 else "job.h5", "w") as f:
    f["prompts"] = ["Once upon a time", "The robot walked", "In the garden"]
