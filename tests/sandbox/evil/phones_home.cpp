// Honest, but for one attempt to reach the network, which fails in a cage and would not in an engine.
#include "linear.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

LINEAR_RUN {
  static int tried = 0;
  if (!tried++) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    if (fd >= 0) {
      connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to);
      close(fd);
    }
  }
  l.compute();
}
