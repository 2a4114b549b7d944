#include "planner/program/interleaved_schedule.hpp"

#include <optional>
#include <utility>

namespace stowage::program {
namespace {

using Kind = ScheduleStep::Kind;

class Interleaved {
public:
    explicit Interleaved(const PipelineShape& shape)
        : shape_(shape),
          forwards_(forward_chunks(shape)),
          backwards_(backward_chunks(shape)),
          total_(std::ssize(forwards_)),
          warmup_(warmup_chunks(shape)) {}

    std::vector<ScheduleStep> run() {
        if (!is_first(forwards_.front())) exchange({{TransferKind::receive_forward, forwards_.front()}});
        warm_up();
        if (shape_.overlapped_transfers)
            steady_overlapped();
        else
            steady_exchanged();
        cool_down();
        return std::move(steps_);
    }

private:
    using Transfers = std::vector<Transfer>;

    [[nodiscard]] bool is_first(Chunk chunk) const { return shape_.rank == 0 && chunk.virtual_stage == 0; }
    [[nodiscard]] bool is_last(Chunk chunk) const {
        return shape_.rank + 1 == shape_.ranks && chunk.virtual_stage + 1 == shape_.virtual_stages;
    }
    [[nodiscard]] std::int64_t remaining() const { return total_ - warmup_; }

    /// What arrives from the rank before while forward `number` is under way or just done. The first rank gets it from
    /// the last, which is ranks - 1 chunks behind.
    [[nodiscard]] std::optional<Chunk> next_input(std::int64_t number) const {
        if (shape_.rank > 0)
            return number + 1 < total_ ? std::optional(forwards_[static_cast<std::size_t>(number + 1)]) : std::nullopt;
        const std::int64_t source = number - (shape_.ranks - 1);
        if (source < 0) return std::nullopt;
        Chunk chunk = forwards_[static_cast<std::size_t>(source)];
        if (++chunk.virtual_stage == shape_.virtual_stages) return std::nullopt;
        return chunk;
    }
    /// The mirror image for output gradients: the last rank gets them from the first.
    [[nodiscard]] std::optional<Chunk> next_output_gradient(std::int64_t number) const {
        if (shape_.rank + 1 < shape_.ranks)
            return number + 1 < total_ ? std::optional(backwards_[static_cast<std::size_t>(number + 1)]) : std::nullopt;
        const std::int64_t source = number - (shape_.ranks - 1);
        if (source < 0) return std::nullopt;
        Chunk chunk = backwards_[static_cast<std::size_t>(source)];
        if (chunk.virtual_stage-- == 0) return std::nullopt;
        return chunk;
    }

    void forward(std::int64_t number) {
        steps_.push_back({Kind::forward, forwards_[static_cast<std::size_t>(number)], {}, {}});
    }
    void backward(std::int64_t number) {
        steps_.push_back({Kind::backward, backwards_[static_cast<std::size_t>(number)], {}, {}});
    }
    void pair(std::int64_t forward, std::int64_t backward) {
        steps_.push_back({Kind::paired,
                          forwards_[static_cast<std::size_t>(forward)],
                          {},
                          backwards_[static_cast<std::size_t>(backward)]});
    }
    void exchange(Transfers transfers) { add(Kind::exchange, std::move(transfers)); }
    void post(Transfers& posted, Transfers transfers) {
        posted = transfers;
        add(Kind::post, std::move(transfers));
    }
    void await(Transfers& posted) { add(Kind::await, std::exchange(posted, {})); }
    void add(Kind kind, Transfers transfers) {
        if (!transfers.empty()) steps_.push_back({kind, {}, std::move(transfers), {}});
    }

    /// Transfers after forward `number`: its output, and the next input if one is still to come.
    [[nodiscard]] Transfers after_forward(std::int64_t number, bool receive) const {
        Transfers transfers;
        const Chunk chunk = forwards_[static_cast<std::size_t>(number)];
        if (!is_last(chunk)) transfers.push_back({TransferKind::send_forward, chunk});
        if (const auto next = next_input(number); receive && next)
            transfers.push_back({TransferKind::receive_forward, *next});
        return transfers;
    }
    [[nodiscard]] Transfers after_backward(std::int64_t number, bool receive) const {
        Transfers transfers;
        const Chunk chunk = backwards_[static_cast<std::size_t>(number)];
        if (!is_first(chunk)) transfers.push_back({TransferKind::send_backward, chunk});
        if (const auto next = next_output_gradient(number); receive && next)
            transfers.push_back({TransferKind::receive_backward, *next});
        return transfers;
    }
    /// The first output gradient, which comes before the first backward.
    [[nodiscard]] Transfers first_output_gradient() const {
        if (is_last(backwards_.front())) return {};
        return {{TransferKind::receive_backward, backwards_.front()}};
    }

    void warm_up() {
        for (std::int64_t i = 0; i < warmup_; ++i) {
            forward(i);
            Transfers transfers = after_forward(i, i + 1 < total_);
            const bool last = i + 1 == warmup_ && remaining() > 0;
            if (last && !shape_.overlapped_transfers)
                for (const Transfer& transfer : first_output_gradient()) transfers.push_back(transfer);
            exchange(std::move(transfers));
        }
        if (remaining() > 0 && shape_.overlapped_transfers) post(posted_backward_, first_output_gradient());
        if (remaining() == 0) exchange(first_output_gradient());
    }

    void steady_overlapped() {
        for (std::int64_t i = 0; i < remaining(); ++i) {
            const std::int64_t number = i + warmup_;
            await(posted_forward_);
            if (shape_.paired) {
                await(posted_backward_);
                pair(number, i);
                post(posted_forward_, after_forward(number, i + 1 < remaining()));
            } else {
                forward(number);
                post(posted_forward_, after_forward(number, i + 1 < remaining()));
                await(posted_backward_);
                backward(i);
            }
            post(posted_backward_, after_backward(i, i + 1 < total_));
        }
        await(posted_forward_);
        await(posted_backward_);
    }

    void steady_exchanged() {
        for (std::int64_t i = 0; i < remaining(); ++i) {
            const std::int64_t number = i + warmup_;
            if (shape_.paired) {
                pair(number, i);
            } else {
                forward(number);
                backward(i);
            }
            Transfers transfers = after_forward(number, i + 1 < remaining());
            for (const Transfer& transfer : after_backward(i, i + 1 < total_)) transfers.push_back(transfer);
            exchange(std::move(transfers));
        }
    }

    void cool_down() {
        for (std::int64_t i = remaining(); i < total_; ++i) {
            backward(i);
            exchange(after_backward(i, i + 1 < total_));
        }
    }

    PipelineShape shape_;
    std::vector<Chunk> forwards_;
    std::vector<Chunk> backwards_;
    std::int64_t total_;
    std::int64_t warmup_;
    Transfers posted_forward_;
    Transfers posted_backward_;
    std::vector<ScheduleStep> steps_;
};

}  // namespace

std::vector<ScheduleStep> interleaved_schedule(const PipelineShape& shape) { return Interleaved(shape).run(); }

}  // namespace stowage::program
