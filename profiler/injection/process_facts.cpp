#include "profiler/injection/process_facts.hpp"

#include <link.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace stowage::profiler {
namespace {

int add_if_cupti(dl_phdr_info* loaded, std::size_t /*size*/, void* found) {
    const std::filesystem::path file(loaded->dlpi_name == nullptr ? "" : loaded->dlpi_name);
    if (file.filename().string().starts_with("libcupti.so"))
        static_cast<std::vector<std::string>*>(found)->push_back(file.string());
    return 0;
}

}  // namespace

std::string command_line() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(file), {});
    while (!text.empty() && text.back() == '\0') text.pop_back();
    std::replace(text.begin(), text.end(), '\0', ' ');
    return text;
}

std::vector<std::string> loaded_cuptis() {
    std::vector<std::string> found;
    dl_iterate_phdr(add_if_cupti, &found);
    return found;
}

}  // namespace stowage::profiler
