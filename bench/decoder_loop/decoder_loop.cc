// A language model from a GGUF file, on Lathe's operators: generates greedily, compares logits with a reference, prints
// digests of decoded tensors. Uses the C ABI only. docs/decoder_loop.md says what is computed where.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/decoder_loop/check.h"
#include "bench/decoder_loop/decoder.h"
#include "bench/decoder_loop/ragged.h"
#include "bench/decoder_loop/shares.h"

namespace lathe::decoder {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Ids separated by white space; each line is a prompt.
std::vector<std::vector<int32_t>> read_prompts(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Problem(path + ": cannot be read");
  std::vector<std::vector<int32_t>> out;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line);
    std::vector<int32_t> ids;
    for (std::string word; words >> word;) {
      int32_t id = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || end != word.data() + word.size())
        throw Problem(path + ": line " + std::to_string(number) + ": expected whole numbers of 32 bits");
      ids.push_back(id);
    }
    if (!ids.empty()) out.push_back(std::move(ids));
  }
  if (out.empty()) throw Problem(path + ": holds no ids");
  return out;
}

// The pieces of a SentencePiece vocabulary, joined; no text where the file has another vocabulary or none.
std::string in_text(const GgufFile& file, const std::vector<int32_t>& ids) {
  if (!file.has("tokenizer.ggml.model") || file.text("tokenizer.ggml.model") != "llama") return "";
  const std::vector<std::string_view> pieces = file.texts("tokenizer.ggml.tokens");
  std::string out;
  for (const int32_t id : ids) {
    if (static_cast<size_t>(id) < pieces.size()) out += pieces[static_cast<size_t>(id)];
  }
  const std::string space = "\u2581";
  for (size_t at = 0; (at = out.find(space, at)) != std::string::npos; ++at) out.replace(at, space.size(), " ");
  return out;
}

double peak_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

struct Settings {
  std::string file, prompts, reference;
  int64_t tokens = 32, ragged = 0;
  int threads = 1;
  double tune = 0;
  bool json = false, digests = false, f32 = false, quantised = false, profile = false;
};

// Packed over stored bytes and seconds of all formats, then of each.
void add_packing(const std::map<std::string, Decoder::Packing>& packing, nlohmann::json* row) {
  const auto share = [](const Decoder::Packing& p) {
    return static_cast<double>(p.packed) / static_cast<double>(std::max<int64_t>(p.stored, 1));
  };
  Decoder::Packing all;
  nlohmann::json formats = nlohmann::json::object();
  for (const auto& [name, p] : packing) {
    all.stored += p.stored;
    all.packed += p.packed;
    all.seconds += p.seconds;
    formats[name] = {{"stored_bytes", p.stored}, {"packed_over_stored", share(p)}, {"packing_s", p.seconds}};
  }
  (*row)["packed_over_stored"] = share(all);
  (*row)["packing_s"] = all.seconds;
  (*row)["formats"] = formats;
}

void generate(const GgufFile& file, Context& context, const Settings& s) {
  const auto prompts = read_prompts(s.prompts);
  size_t longest = 0;
  for (const auto& p : prompts) longest = std::max(longest, p.size());
  Decoder decoder(file, context, static_cast<int64_t>(longest) + s.tokens, s.f32);
  Profile profile;
  Rates rates;
  if (s.profile) rates = rates_of_a_core(s.quantised);
  for (const auto& prompt : prompts) {
    std::vector<float> logits;
    std::vector<int32_t> ids;
    decoder.restart();
    if (s.profile) {
      // Once before, so that nothing is made while it is looked at.
      decoder.append(prompt, false, logits);
      (void)decoder.first_choice(logits);
      decoder.restart();
      context.set_profile(&profile);
    }
    Clock::time_point start = Clock::now();
    decoder.append(prompt, false, logits);
    const double prefill = seconds_since(start);
    const std::vector<Profile::Row> of_prompt = profile.take(prefill);
    start = Clock::now();
    for (int64_t i = 0; i < s.tokens; ++i) {
      if (i > 0) decoder.append({ids.back()}, false, logits);
      ids.push_back(decoder.first_choice(logits));
    }
    // The first id came with the prompt.
    const double decode = seconds_since(start), steps = static_cast<double>(s.tokens - 1);
    nlohmann::json row = {{"ids", ids},
                          {"text", in_text(file, ids)},
                          {"prefill_tokens_s", static_cast<double>(prompt.size()) / prefill},
                          {"decode_tokens_s", steps / decode},
                          {"peak_gib", peak_gib()}};
    add_packing(decoder.packing(), &row);
    if (s.profile) {
      context.set_profile(nullptr);
      row["prefill_profile"] = profile_json(of_prompt, prefill, rates);
      row["decode_profile"] = profile_json(profile.take(decode), decode, rates);
    }
    if (s.json) {
      std::printf("%s\n", row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
      continue;
    }
    std::printf("ids ");
    for (const int32_t id : ids) std::printf(" %d", id);
    std::printf("\n");
    if (const std::string text = in_text(file, ids); !text.empty()) std::printf("text %s\n", text.c_str());
    std::printf("prefill %zu ids at %.1f a second, decode %" PRId64 " at %.1f; at most %.2f GiB\n", prompt.size(),
                row["prefill_tokens_s"].get<double>(), s.tokens - 1, row["decode_tokens_s"].get<double>(),
                row["peak_gib"].get<double>());
    if (!s.profile) continue;
    print_profile("prefill", row["prefill_profile"]);
    print_profile("decode", row["decode_profile"]);
  }
}

// The searches so far: what follows is counted from there.
uint64_t seal(Context& context) {
  lathe_error e{};
  if (lathe_seal(context.handle(), LATHE_SEAL_FALLBACK, &e) != LATHE_STATUS_OK) throw Problem(e.message);
  return context.counter("searches");
}

void print(const nlohmann::json& row, bool json) {
  if (json) {
    std::printf("%s\n", row.dump().c_str());
  } else {
    for (const auto& [key, value] : row.items()) std::printf("%-22s %s\n", key.c_str(), value.dump().c_str());
  }
}

// Half of each sequence as a prompt, the rest id by id: both ways of the loop meet the reference. So do the logits
// after all of it as a prompt, of which the last layer is computed for one row.
void check(const GgufFile& file, Context& context, const Settings& s) {
  const Reference reference = read_reference(s.reference);
  if (reference.length < 2) throw Problem(s.reference + ": sequences of 1 id, expected 2 or more");
  const auto length = static_cast<int64_t>(reference.length), half = (length + 1) / 2;
  Decoder decoder(file, context, length, s.f32);
  if (static_cast<uint64_t>(decoder.vocabulary()) != reference.vocabulary) {
    throw Problem(s.reference + ": vocabulary " + std::to_string(reference.vocabulary) + ", expected " +
                  std::to_string(decoder.vocabulary()));
  }
  std::vector<float> logits;
  const auto sequence = [&](uint64_t i) {
    const auto first = reference.ids.begin() + static_cast<int64_t>(i) * length;
    return std::vector<int32_t>(first, first + length);
  };
  // Every shape once, so that nothing is left to be made after the seal.
  decoder.append(sequence(0), false, logits);
  decoder.restart();
  const uint64_t searched = seal(context);
  Distance distance, prompts;
  Measured measured;
  for (uint64_t i = 0; i < reference.sequences; ++i) {
    const std::vector<int32_t> ids = sequence(i);
    decoder.restart();
    Clock::time_point start = Clock::now();
    decoder.append(ids, false, logits);
    measured.prompt_seconds += seconds_since(start);
    measured.prompt_operations += decoder.prompt_operations(length);
    prompts.add(logits.data(), reference.at(i, reference.length - 1), reference.vocabulary, -1);
    decoder.restart();
    decoder.append({ids.begin(), ids.begin() + half}, true, logits);
    for (int64_t t = 0; t < length; ++t) {
      const auto at = static_cast<size_t>(t);
      if (t >= half) {
        start = Clock::now();
        decoder.append({ids[at]}, false, logits);
        measured.step_seconds += seconds_since(start);
        measured.step_bytes += decoder.step_bytes(t);
      }
      const float* own = logits.data() + (t < half ? t * decoder.vocabulary() : 0);
      distance.add(own, reference.at(i, at), reference.vocabulary, t + 1 < length ? ids[at + 1] : -1);
    }
  }
  const auto sequences = static_cast<double>(reference.sequences);
  const char* kind = s.quantised ? "quantised" : "exact";
  nlohmann::json row = {{"prefill_tokens_s", sequences * static_cast<double>(length) / measured.prompt_seconds},
                        {"decode_tokens_s", sequences * static_cast<double>(length - half) / measured.step_seconds},
                        {std::string("kl_") + kind, distance.divergence()},
                        {std::string("top1_") + kind, distance.same_choice()},
                        {"top1_positions", distance.clear()},
                        {"nll", distance.log_likelihood()},
                        {"nll_reference", distance.reference_log_likelihood()},
                        {"nll_worst_difference", distance.worst_log_likelihood()},
                        {"logit_worst_error", distance.worst_logit()},
                        {"prompt_worst_error", prompts.worst_logit()},
                        {"compiles_after_seal", context.counter("compiles_after_seal")},
                        {"searches", context.counter("searches") - searched},
                        {"peak_gib", peak_gib()}};
  add_packing(decoder.packing(), &row);
  const Shares shares = shares_of(measured, s.threads, s.quantised);
  const auto known = [](const std::optional<double>& share) {
    return share ? nlohmann::json(*share) : nlohmann::json();
  };
  row["decode_of_read"] = known(shares.decode_of_read);
  row["prefill_of_peak"] = known(shares.prefill_of_peak);
  print(row, s.json);
}

void ragged(const GgufFile& file, Context& context, const Settings& s) {
  const Clock::time_point start = Clock::now();
  uint64_t searched = 0;
  const RaggedResult r = run_ragged(file, context, s.ragged, 1, s.f32, [&] { searched = seal(context); });
  nlohmann::json row = {{"batches", r.batches},
                        {"sequences", r.sequences},
                        {"ids", r.ids},
                        {"seconds", seconds_since(start)},
                        {"checked", r.checked},
                        {"same_choice", r.same_choice},
                        {"logit_worst_error", r.worst_error},
                        {"compiles_after_seal", context.counter("compiles_after_seal")},
                        {"searches", context.counter("searches") - searched},
                        {"peak_gib", peak_gib()}};
  add_packing(r.packing, &row);
  print(row, s.json);
}

// One number per tensor: the sum over elements of their bits times 1, 2, 3, ..., modulo 2^64.
void digests(const GgufFile& file) {
  std::vector<float> row;
  for (const auto& [name, t] : file.tensors()) {
    uint64_t digest = 0, index = 0;
    row.resize(t.row_length());
    for (uint64_t r = 0; r < t.rows(); ++r) {
      t.decode_row(r, row.data());
      for (const float x : row) digest += ++index * std::bit_cast<uint32_t>(x);
    }
    std::printf("%s %s %016" PRIx64 "\n", name.c_str(), t.format->name, digest);
  }
}

int run(int argc, char** argv) {
  Settings s;
  CLI::App app("A language model from a GGUF file, on Lathe's operators");
  app.add_option("FILE", s.file, "a GGUF file: gemma3 or qwen2")->required();
  CLI::Option* prompts = app.add_option("--prompt-ids", s.prompts, "a file of ids; each line is a prompt");
  app.add_option("--tokens", s.tokens, "ids to generate after each prompt")->check(CLI::Range(2, 1 << 16));
  app.add_option("--threads", s.threads, "of Lathe")->check(CLI::Range(1, 256));
  CLI::Option* reference = app.add_option("--check", s.reference, "logits of reference.py to compare with");
  CLI::Option* digest = app.add_flag("--digests", s.digests, "print one number per decoded tensor, and end");
  CLI::Option* batches = app.add_option("--ragged", s.ragged, "random batches of sequences of unequal lengths")
                             ->check(CLI::Range(1, 1 << 20));
  CLI::Option* f32 =
      app.add_flag("--f32", s.f32, "decode the weights to f32 first, rather than multiply by what the file has");
  app.add_flag("--quantised", s.quantised, "round activations to bytes where weights are of few bits")->excludes(f32);
  app.add_option("--tune", s.tune, "seconds to search each kernel as it is made; the store keeps what is found")
      ->check(CLI::Range(0.0, 1e6));
  app.add_flag("--json", s.json, "one object on standard output, for each prompt or for the check");
  app.add_flag("--profile", s.profile, "with --prompt-ids: where the time goes, kernel by kernel")->needs(prompts);
  prompts->excludes(reference)->excludes(digest);
  reference->excludes(digest);
  batches->excludes(prompts)->excludes(reference)->excludes(digest);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    if (!s.digests && s.reference.empty() && s.prompts.empty() && s.ragged == 0)
      throw Problem("expected --prompt-ids, --check, --ragged or --digests");
    const GgufFile file(s.file);
    if (s.digests) {
      digests(file);
      return 0;
    }
    Context context(s.threads, s.quantised, s.tune);
    if (s.ragged > 0) {
      ragged(file, context, s);
    } else if (s.reference.empty()) {
      generate(file, context, s);
    } else {
      check(file, context, s);
    }
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "decoder_loop: %s\n", problem.what());
    return 2;
  }
}

}  // namespace
}  // namespace lathe::decoder

int main(int argc, char** argv) { return lathe::decoder::run(argc, argv); }
