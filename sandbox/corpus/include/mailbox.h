// What the native exploits here share to find the runner's descriptors and its own mapping of the input mailbox.
#pragma once
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Calls visit(fd, what it leads to) for every open descriptor of this process.
template <class Visit>
static inline void each_descriptor(Visit visit) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (dirent* entry = readdir(folder)) {
    char path[64], target[512];
    snprintf(path, sizeof path, "/proc/self/fd/%.20s", entry->d_name);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) continue;
    target[length] = 0;
    visit(atoi(entry->d_name), target);
  }
  closedir(folder);
}

// The start of the mapping whose name holds `name`, or null.
static inline const unsigned char* find_mapping(const char* name) {
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == nullptr) return nullptr;
  char line[1024];
  unsigned long start = 0, found = 0;
  while (fgets(line, sizeof line, maps) != nullptr)
    if (strstr(line, name) != nullptr && found == 0 && sscanf(line, "%lx", &start) == 1) found = start;
  fclose(maps);
  return reinterpret_cast<const unsigned char*>(found);
}

// Whether this process lives in a PID namespace of a cage; nothing that hits others is tried anywhere else.
static inline bool is_caged() {
  char name[32] = "";
  FILE* file = fopen("/proc/1/comm", "r");
  if (file != nullptr) {
    if (fgets(name, sizeof name, file) == nullptr) name[0] = 0;
    fclose(file);
  }
  return strncmp(name, "bwrap", 5) == 0;
}
