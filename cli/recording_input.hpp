#pragma once

#include <string>

#include "planner/search/job.hpp"

namespace stowage::cli {

/// `--recording PATH`: gives the kernels of the job the times of that recording; of one without a scenario, of a
/// process that only marked its modules, the job gets the layers. `input` is the scenario or plan that the verb read.
/// The recorded scenario is read again; files it refers to are looked for beside the recording, in the folder above,
/// and beside `input`. Throws: types::InputError with the recording's path, the place in it and a hint.
void use_recording(search::Job& job, const std::string& path, const std::string& input);

}  // namespace stowage::cli
