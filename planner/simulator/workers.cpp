#include "planner/simulator/workers.hpp"

namespace stowage::simulator {

Workers::Workers(int threads) : begin_(threads), end_(threads) {
    for (int i = 1; i < threads; ++i)
        threads_.emplace_back([this] {
            for (;;) {
                begin_.arrive_and_wait();
                if (stopping_) return;
                take_pieces();
                end_.arrive_and_wait();
            }
        });
}

Workers::~Workers() {
    stopping_ = true;
    if (!threads_.empty()) begin_.arrive_and_wait();
}

void Workers::take_pieces() {
    for (std::size_t i = next_++; i < failures_.size(); i = next_++) {
        try {
            (*work_)(i);
        } catch (...) {
            failures_[i] = std::current_exception();
        }
    }
}

void Workers::run(std::size_t count, const std::function<void(std::size_t)>& work) {
    failures_.assign(count, nullptr);
    work_ = &work;
    next_ = 0;
    const bool alone = threads_.empty() || count < 2;
    if (!alone) begin_.arrive_and_wait();
    take_pieces();
    if (!alone) end_.arrive_and_wait();
    for (const std::exception_ptr& failure : failures_)
        if (failure) std::rethrow_exception(failure);
}

}  // namespace stowage::simulator
