// Follows a null pointer.
#include "linear.h"

LINEAR_RUN {
  *static_cast<volatile float*>(nullptr) = l.x[0];
}
