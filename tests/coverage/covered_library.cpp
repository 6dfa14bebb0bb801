// Of a shared library, which has a profiler of its own.

static volatile int work_done = 0;

void work_in_library() {
  work_done = 1;  // in ranks alone, of the library
}
