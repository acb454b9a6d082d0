#include <kernelwright.h>
KW_RUN(args, 3) { this is not C++ }
