#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace stowage::docs {

/// A command of a page and what the page says that it prints.
struct Example {
    std::string command;
    std::string output;
    std::size_t line = 0;  ///< of the command, from 1
};

/// Indented lines that begin with "$ " are commands; the indented lines behind one are its output.
std::vector<Example> examples_of(const std::string& page);

/// The page with the outputs of `examples`, which are its own examples, in order.
std::string with_outputs(const std::string& page, const std::vector<Example>& examples);

/// Runs the examples in turn in a copy of the folders that they read, with the command `stowage` of this build in the
/// path, and returns them with what they print. Throws: std::runtime_error naming a command that fails.
std::vector<Example> run(std::vector<Example> examples);

}  // namespace stowage::docs
