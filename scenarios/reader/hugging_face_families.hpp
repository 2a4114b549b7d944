#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/reader/drafts.hpp"
#include "scenarios/reader/megatron_arguments_file.hpp"

namespace stowage::reader {

/// How one family's config.json is read into a model.
struct HuggingFaceFamily {
    std::string_view model_type;
    void (*import)(Arguments& config, ModelDraft& draft);
};

const std::vector<HuggingFaceFamily>& hugging_face_families();

/// Notes every key that no family's reader asked for and that is not known to change no size.
void settle_other_keys(Arguments& config);

}  // namespace stowage::reader
