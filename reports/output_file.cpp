#include "reports/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "scenarios/types/error.hpp"

namespace stowage::reports {
namespace {

constexpr int kPermissions = 0666;  // less the user's umask
constexpr std::size_t kBuffer = 1 << 20;

std::filesystem::path temporary_name(const std::filesystem::path& path) {
    std::filesystem::path name = path;
    name += fmt::format(".{}.partial", getpid());
    return name;
}

/// A link stays a link: what it points to is replaced.
std::filesystem::path followed(std::filesystem::path path) {
    std::error_code failed;
    if (!std::filesystem::is_symlink(path, failed)) return path;
    std::filesystem::path target = std::filesystem::canonical(path, failed);
    return failed ? path : target;
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path)
    : path_(followed(std::move(path))), temporary_(temporary_name(path_)) {
    std::error_code ignored;
    const std::filesystem::file_status there = std::filesystem::status(path_, ignored);
    if (std::filesystem::is_directory(there)) fail("writing it", EISDIR);
    if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
        throw types::InputError(
            fmt::format("{}: error: is not a regular file, and is not replaced by one", path_.string()));
    const int descriptor = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kPermissions);
    if (descriptor < 0) fail("creating it", errno);
    file_ = fdopen(descriptor, "wb");
    if (file_ == nullptr) {
        const int code = errno;
        close(descriptor);
        unlink(temporary_.c_str());
        fail("creating it", code);
    }
    std::setvbuf(file_, nullptr, _IOFBF, kBuffer);
}

OutputFile::~OutputFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    unlink(temporary_.c_str());
}

void OutputFile::fail(std::string_view doing, int code) const {
    const std::string folder = path_.has_parent_path() ? path_.parent_path().string() : ".";
    std::string hint;
    if (code == ENOENT) hint = fmt::format("\nhint: there is no folder '{}'; make it first", folder);
    if (code == EACCES || code == EROFS) hint = fmt::format("\nhint: the folder '{}' is not writable for you", folder);
    throw types::InputError(
        fmt::format("{}: error: {} failed: {}{}", path_.string(), doing, std::strerror(code), hint));
}

void OutputFile::write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail("writing it", errno);
}

void OutputFile::commit() {
    std::FILE* const file = std::exchange(file_, nullptr);
    const bool flushed = std::fflush(file) == 0 && fsync(fileno(file)) == 0;
    const int code = errno;
    const bool closed = std::fclose(file) == 0;
    if (!flushed || !closed) {
        unlink(temporary_.c_str());
        fail("writing it", flushed ? errno : code);
    }
    if (std::rename(temporary_.c_str(), path_.c_str()) == 0) return;
    const int reason = errno;
    unlink(temporary_.c_str());
    fail("putting it in place", reason);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
    OutputFile file(path);
    file.write(text);
    file.commit();
}

}  // namespace stowage::reports
