#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"

namespace stowage::layers::testing {

/// Runs the steps of a chunk's frames with PyTorch's reference counts and nothing offloaded.
/// A fault is a sentence: a use after free, a second drop, a tensor that nobody frees.
class Replay {
public:
    explicit Replay(const StageLayers& stage);
    explicit Replay(const LayerScript& script);

    void forward();
    void backward();

    [[nodiscard]] const std::vector<std::string>& faults() const { return faults_; }
    [[nodiscard]] Bytes live() const { return live_; }
    [[nodiscard]] Bytes peak() const { return peak_; }
    /// Names of the storages alive, for messages.
    [[nodiscard]] std::vector<std::string> alive() const;

private:
    struct Storage {
        std::string name;
        Bytes bytes;
        int variables = 0;
        int saves = 0;
    };
    using Id = std::pair<std::size_t, Slot>;  // frame and slot of the tensor that made it

    /// kOutput is the next frame's kInput, kGradInput the previous frame's kGradOutput.
    Id resolve(std::size_t frame, Slot slot) const;
    Bytes size_of(Id id) const;
    void allocate(Id id);
    void drop(Id id);
    void release(Id id);
    void run(std::size_t frame, const std::vector<Step>& steps);
    void run_step(std::size_t frame, const Step& step);
    void fault(std::size_t frame, const std::string& what);

    std::vector<const LayerScript*> frames_;
    std::map<Id, Storage> storages_;
    std::vector<std::string> faults_;
    Bytes live_;
    Bytes peak_;
};

}  // namespace stowage::layers::testing
