#pragma once
// What diffusers' pipelines do to a prompt before it is tokenized: HTML's character references become
// characters, twice over, and runs of white space one space (pipelines/wan/pipeline_wan.py, prompt_clean).

#include <string>
#include <string_view>

namespace diffuse {

// Of valid UTF-8. References by number, and by the names amp, apos, gt, lt, nbsp and quot; other names stay
// as they are. What that library does where ftfy is installed (it repairs texts that were decoded wrongly) is
// not done.
std::string cleaned_prompt(std::string_view text);

}  // namespace diffuse
