// The dynamic linker has written the addresses of functions where relocations tell (ELF: "dynamic
// section", R_X86_64_JUMP_SLOT and the like; the names are those of <elf.h>).
#include "pjrt/plugin_memory.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/kept_blocks.h"
#include "pjrt/api.h"

namespace torch_xla::pjrt {
namespace {

using base::kept_blocks;
using base::KeptBlocks;

#if defined(__x86_64__)
constexpr std::array<std::uint64_t, 3> kFunctionRelocations = {R_X86_64_JUMP_SLOT,
                                                               R_X86_64_GLOB_DAT, R_X86_64_64};
#elif defined(__aarch64__)
constexpr std::array<std::uint64_t, 3> kFunctionRelocations = {R_AARCH64_JUMP_SLOT,
                                                               R_AARCH64_GLOB_DAT, R_AARCH64_ABS64};
#else
constexpr std::array<std::uint64_t, 0> kFunctionRelocations = {};
#endif

bool is_for_kept_blocks(std::size_t alignment, std::size_t num_bytes) {
  return num_bytes >= KeptBlocks::kLeastBytes && alignment <= KeptBlocks::kAlignment;
}

// Quick for the many blocks that are not ours.
bool may_be_kept_block(const void* block) {
  return block != nullptr && reinterpret_cast<std::uintptr_t>(block) % KeptBlocks::kAlignment == 0;
}

int own_posix_memalign(void** block, std::size_t alignment, std::size_t num_bytes) {
  if (!is_for_kept_blocks(alignment, num_bytes)) {
    return posix_memalign(block, alignment, num_bytes);
  }
  *block = kept_blocks().allocate(num_bytes);
  return *block != nullptr ? 0 : ENOMEM;
}

void* own_aligned_alloc(std::size_t alignment, std::size_t num_bytes) {
  if (!is_for_kept_blocks(alignment, num_bytes)) return std::aligned_alloc(alignment, num_bytes);
  return kept_blocks().allocate(num_bytes);
}

void own_free(void* block) {
  if (may_be_kept_block(block) && kept_blocks().free(block)) return;
  std::free(block);
}

void* own_realloc(void* block, std::size_t num_bytes) {
  const std::size_t size = may_be_kept_block(block) ? kept_blocks().size_of(block) : 0;
  if (size == 0) return std::realloc(block, num_bytes);
  void* const moved = std::malloc(num_bytes);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, block, std::min(size, num_bytes));
  own_free(block);
  return moved;
}

struct Replacement {
  std::string_view name;
  void* function;
};

const std::array<Replacement, 4> kReplacements = {{
    {"posix_memalign", reinterpret_cast<void*>(&own_posix_memalign)},
    {"aligned_alloc", reinterpret_cast<void*>(&own_aligned_alloc)},
    {"free", reinterpret_cast<void*>(&own_free)},
    {"realloc", reinterpret_cast<void*>(&own_realloc)},
}};

// Where a library keeps the address of one of these functions.
struct Place {
  void** address;
  const Replacement* replacement;
  bool is_read_only;
};

struct DynamicSection {
  const char* names = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  std::span<const ElfW(Rela)> calls;
  std::span<const ElfW(Rela)> data;
};

DynamicSection dynamic_section(const dl_phdr_info& library) {
  const std::span headers(library.dlpi_phdr, library.dlpi_phnum);
  const auto found = std::ranges::find(headers, std::uint32_t{PT_DYNAMIC}, &ElfW(Phdr)::p_type);
  DynamicSection section;
  if (found == headers.end()) return section;
  std::array<const ElfW(Rela)*, 2> starts = {};
  std::array<std::size_t, 2> counts = {};
  // The dynamic linker of glibc has made the addresses in it those of this process.
  for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(library.dlpi_addr + found->p_vaddr);
       entry->d_tag != DT_NULL; ++entry) {
    const ElfW(Addr) value = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_STRTAB: section.names = reinterpret_cast<const char*>(value); break;
      case DT_SYMTAB: section.symbols = reinterpret_cast<const ElfW(Sym)*>(value); break;
      case DT_JMPREL: starts[0] = reinterpret_cast<const ElfW(Rela)*>(value); break;
      case DT_PLTRELSZ: counts[0] = value / sizeof(ElfW(Rela)); break;
      case DT_RELA: starts[1] = reinterpret_cast<const ElfW(Rela)*>(value); break;
      case DT_RELASZ: counts[1] = value / sizeof(ElfW(Rela)); break;
      default: break;
    }
  }
  section.calls = {starts[0], counts[0]};
  section.data = {starts[1], counts[1]};
  return section;
}

std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

void* page_of(const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  return reinterpret_cast<void*>(place / page_size() * page_size());
}

// Whether a segment of this type has the address.
bool has_in(const dl_phdr_info& library, std::uint32_t type, const void* address) {
  const auto place = reinterpret_cast<ElfW(Addr)>(address) - library.dlpi_addr;
  const std::span headers(library.dlpi_phdr, library.dlpi_phnum);
  return std::ranges::any_of(headers, [&](const ElfW(Phdr) & header) {
    return header.p_type == type && place - header.p_vaddr < header.p_memsz;
  });
}

// The linker makes the pages read-only of which the segment has the end.
const void* last_of_page(const void* address) {
  return static_cast<const char*>(page_of(address)) + page_size() - 1;
}

void add_places(const dl_phdr_info& library, const DynamicSection& section,
                std::span<const ElfW(Rela)> relocations, std::vector<Place>& places) {
  for (const ElfW(Rela) & relocation : relocations) {
    const std::uint64_t type = ELF64_R_TYPE(relocation.r_info);
    if (std::ranges::find(kFunctionRelocations, type) == kFunctionRelocations.end()) continue;
    const ElfW(Sym) & symbol = section.symbols[ELF64_R_SYM(relocation.r_info)];
    if (symbol.st_shndx != SHN_UNDEF) continue;
    const std::string_view name = section.names + symbol.st_name;
    const auto* found = std::ranges::find(kReplacements, name, &Replacement::name);
    if (found == kReplacements.end()) continue;
    auto** const address = reinterpret_cast<void**>(library.dlpi_addr + relocation.r_offset);
    places.push_back({address, found, has_in(library, PT_GNU_RELRO, last_of_page(address))});
  }
}

struct Search {
  const void* function;  // one of the library's
  std::vector<Place> places = {};
};

int find_places(dl_phdr_info* library, std::size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  if (!has_in(*library, PT_LOAD, search.function)) return 0;
  const DynamicSection section = dynamic_section(*library);
  if (section.names != nullptr && section.symbols != nullptr) {
    add_places(*library, section, section.calls, search.places);
    add_places(*library, section, section.data, search.places);
  }
  return 1;
}

bool write_function(const Place& place) {
  const auto protect = [page = page_of(place.address)](int protection) {
    return mprotect(page, page_size(), protection) == 0;
  };
  if (place.is_read_only && !protect(PROT_READ | PROT_WRITE)) return false;
  __atomic_store_n(place.address, place.replacement->function, __ATOMIC_RELEASE);
  return !place.is_read_only || protect(PROT_READ);
}

// glibc learns to keep blocks itself, of up to 32 MB, when it frees the first one that it has
// mapped. Those were the plugin's, and PyTorch's kernels profited.
void teach_the_c_library() {
  void* volatile block = std::malloc((std::size_t{32} << 20) - (std::size_t{64} << 10));
  std::free(block);
}

}  // namespace

bool keep_freed_memory(const Plugin& plugin) {
  Search search{reinterpret_cast<const void*>(plugin.api()->PJRT_Client_Create)};
  dl_iterate_phdr(&find_places, &search);
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(search.places,
                               [&](const Place& p) { return p.replacement->name == name; });
  };
  if (!has("free") || (!has("posix_memalign") && !has("aligned_alloc"))) return false;
  static_cast<void>(kept_blocks());  // makes them, where this may throw
  // What frees first: before, no block may be one of these.
  std::ranges::stable_sort(search.places, {}, [](const Place& place) {
    return place.replacement->name != "free" && place.replacement->name != "realloc";
  });
  teach_the_c_library();
  return std::ranges::all_of(search.places, write_function);
}

}  // namespace torch_xla::pjrt
