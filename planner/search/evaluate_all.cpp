#include "planner/search/evaluate_all.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

namespace stowage::search {

unsigned threads_of(const SearchOptions& options) {
    return options.threads != 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
}

std::vector<Outcome> evaluate_all(const Job& job, const std::vector<OffloadChoice>& choices,
                                  const SearchOptions& options) {
    std::vector<Outcome> outcomes(choices.size());
    std::vector<std::exception_ptr> failures(choices.size());
    std::atomic<std::size_t> next{0};
    auto work = [&] {
        for (std::size_t i = next++; i < choices.size(); i = next++) {
            try {
                outcomes[i] = evaluate(job, choices[i], options.simulation);
            } catch (...) {
                failures[i] = std::current_exception();
            }
        }
    };
    {
        std::vector<std::jthread> helpers;
        for (unsigned i = 1; i < std::min<std::size_t>(threads_of(options), choices.size()); ++i)
            helpers.emplace_back(work);
        work();
    }
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
    return outcomes;
}

}  // namespace stowage::search
