#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace stowage::simulator {

/// A few threads that share out numbered pieces of work which do not touch each other. With one thread everything runs
/// on the caller's.
class Workers {
public:
    explicit Workers(int threads);
    ~Workers();
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;
    Workers(Workers&&) = delete;
    Workers& operator=(Workers&&) = delete;

    /// Calls `work` once for each of 0 to count - 1. Throws what the lowest number threw, once all are done.
    void run(std::size_t count, const std::function<void(std::size_t)>& work);

private:
    void take_pieces();

    std::vector<std::exception_ptr> failures_;
    const std::function<void(std::size_t)>* work_ = nullptr;
    std::atomic<std::size_t> next_ = 0;
    bool stopping_ = false;
    std::barrier<> begin_;
    std::barrier<> end_;
    std::vector<std::jthread> threads_;
};

}  // namespace stowage::simulator
