#pragma once

#include <utility>

#include "executor/cuda/check.hpp"

namespace stowage::executor {

/// Owns one handle of the CUDA runtime: move-only, empty after a move, released by `Traits::release` when it ends.
/// `Traits` has `static cudaError_t release(Handle)` and `static constexpr const char* kName`, what a failed release is
/// reported under. An empty handle is `Handle{}`, and is not released.
template <class Handle, class Traits>
class UniqueHandle {
public:
    UniqueHandle() = default;
    explicit UniqueHandle(Handle handle) : handle_(handle) {}
    UniqueHandle(const UniqueHandle&) = delete;
    UniqueHandle& operator=(const UniqueHandle&) = delete;
    UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
    UniqueHandle& operator=(UniqueHandle&& other) noexcept {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, Handle{});
        }
        return *this;
    }
    ~UniqueHandle() { reset(); }

    [[nodiscard]] Handle get() const { return handle_; }
    explicit operator bool() const { return handle_ != Handle{}; }
    /// Releases what is owned, if anything.
    void reset() noexcept {
        if (handle_ != Handle{}) report_release(Traits::release(std::exchange(handle_, Handle{})), Traits::kName);
    }

private:
    Handle handle_{};
};

}  // namespace stowage::executor
