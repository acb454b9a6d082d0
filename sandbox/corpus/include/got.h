// Overwrites, in every library of this process, the import table entries of one function. ELF, 64 bits.
#pragma once
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

struct Patch {
  const char* name;
  void* with;
  int count;
};

static inline void patch_table(const dl_phdr_info* library, const Elf64_Rela* table, size_t bytes,
                               const Elf64_Sym* symbols, const char* strings, Patch* patch) {
  for (size_t i = 0; i < bytes / sizeof *table; ++i) {
    if (strcmp(strings + symbols[ELF64_R_SYM(table[i].r_info)].st_name, patch->name) != 0) continue;
    void** entry = reinterpret_cast<void**>(library->dlpi_addr + table[i].r_offset);
    const uintptr_t page = reinterpret_cast<uintptr_t>(entry) & ~uintptr_t{4095};
    if (mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE) != 0 &&
        mprotect(reinterpret_cast<void*>(page), 4096, PROT_READ | PROT_WRITE) != 0)
      continue;
    *entry = patch->with;
    ++patch->count;
  }
}

static inline int patch_library(dl_phdr_info* library, size_t, void* data) {
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    if (library->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    auto* entry = reinterpret_cast<const Elf64_Dyn*>(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
    const Elf64_Sym* symbols = nullptr;
    const char* strings = nullptr;
    const Elf64_Rela *plt = nullptr, *rela = nullptr;
    size_t plt_bytes = 0, rela_bytes = 0;
    for (; entry->d_tag != DT_NULL; ++entry) {
      const uintptr_t at = entry->d_un.d_ptr;
      if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const Elf64_Sym*>(at);
      if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(at);
      if (entry->d_tag == DT_JMPREL) plt = reinterpret_cast<const Elf64_Rela*>(at);
      if (entry->d_tag == DT_PLTRELSZ) plt_bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_RELA) rela = reinterpret_cast<const Elf64_Rela*>(at);
      if (entry->d_tag == DT_RELASZ) rela_bytes = entry->d_un.d_val;
    }
    if (strings == nullptr || reinterpret_cast<uintptr_t>(strings) < library->dlpi_addr) return 0;  // the vDSO
    auto* patch = static_cast<Patch*>(data);
    if (plt != nullptr) patch_table(library, plt, plt_bytes, symbols, strings, patch);
    if (rela != nullptr) patch_table(library, rela, rela_bytes, symbols, strings, patch);
  }
  return 0;
}

// Returns how many entries were overwritten.
static inline int patch_imports(const char* name, void* with) {
  Patch patch = {name, with, 0};
  dl_iterate_phdr(patch_library, &patch);
  return patch.count;
}
