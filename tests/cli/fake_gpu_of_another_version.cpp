// A library that speaks version 0 of what the command asks for: no version has that number.
extern "C" __attribute__((visibility("default"))) int stowage_gpu_version() { return 0; }
