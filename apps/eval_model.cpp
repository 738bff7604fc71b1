#include "eval_modes.h"
#include "keel/base/log.h"
#include "keel/model/model_config_json.h"

namespace keel {

void ScoredModel::add_to(Report& report) const {
  add_weight_inputs(report, folder);
  for (const auto& file : tokenizer->files()) report.add_input_file(file);
}

ScoredModel open_scored_model(const Options& options) {
  ScoredModel model{.folder = open_model_folder(options.text("MODEL"))};
  for (const std::string& warning : model.folder.warnings) log::warn("{}", warning);
  model.config = parse_model_config(model.folder.config_text, model.folder.config_path);
  model.tokenizer = load_model_tokenizer(model.folder.tokenizer_path, model.config.vocab_size, model.folder.path);
  return model;
}

}  // namespace keel
