#pragma once

#include "executor/cuda/unique_handle.hpp"

namespace stowage::executor {

/// A stream of somebody else's, or of a `Stream` that outlives this: what functions take.
class StreamRef {
public:
    /// The default stream of the device.
    StreamRef() = default;
    explicit StreamRef(cudaStream_t stream) : stream_(stream) {}
    [[nodiscard]] cudaStream_t get() const { return stream_; }

    /// Waits on the host until everything given to the stream is done. Throws: DeviceError, also for what failed
    /// earlier on the device; `doing` says what was being waited for.
    void synchronize(std::string_view doing = "waiting for a stream") const;
    /// Whether everything given to the stream is done. Throws: DeviceError.
    [[nodiscard]] bool is_idle() const;
    /// Whether a capture that this stream takes part in is going on. Throws: DeviceError if that capture was broken.
    [[nodiscard]] bool is_capturing() const;

    friend bool operator==(StreamRef, StreamRef) = default;

private:
    cudaStream_t stream_ = nullptr;
};

enum class StreamPriority { normal, high };

struct StreamTraits {
    static cudaError_t release(cudaStream_t stream) { return cudaStreamDestroy(stream); }
    static constexpr const char* kName = "a stream";
};

/// A stream of ours, on the device that was current when it was made. It does not wait for the default stream.
class Stream {
public:
    /// `high` is the device's highest priority. Throws: DeviceError.
    explicit Stream(StreamPriority priority = StreamPriority::normal);
    [[nodiscard]] StreamRef ref() const { return StreamRef(handle_.get()); }
    [[nodiscard]] cudaStream_t get() const { return handle_.get(); }
    void synchronize(std::string_view doing = "waiting for a stream") const { ref().synchronize(doing); }

private:
    UniqueHandle<cudaStream_t, StreamTraits> handle_;
};

}  // namespace stowage::executor
