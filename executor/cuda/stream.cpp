#include "executor/cuda/stream.hpp"

namespace stowage::executor {

void StreamRef::synchronize(std::string_view doing) const { check(cudaStreamSynchronize(stream_), doing); }

bool StreamRef::is_idle() const {
    const cudaError_t code = cudaStreamQuery(stream_);
    if (code == cudaErrorNotReady) {
        static_cast<void>(cudaGetLastError());
        return false;
    }
    check(code, "asking whether a stream is idle");
    return true;
}

bool StreamRef::is_capturing() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream_, &status), "asking whether a stream is being captured");
    if (status == cudaStreamCaptureStatusInvalidated) {
        throw DeviceError("the capture of a stream was broken by an earlier call that a capture does not allow");
    }
    return status == cudaStreamCaptureStatusActive;
}

Stream::Stream(StreamPriority priority) {
    int least = 0;
    int greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for the priorities of streams");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                       priority == StreamPriority::high ? greatest : least),
          "making a stream");
    handle_ = UniqueHandle<cudaStream_t, StreamTraits>(stream);
}

}  // namespace stowage::executor
