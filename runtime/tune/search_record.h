// What a search, or the lack of one, leaves in the store: a decision whose leaves are made and published with it.
// Thread-safe, as contexts are.
#pragma once
#include <optional>

#include "runtime/tune/warmup_search.h"

namespace lathe::runtime {

// The default, if the caller allows its liberties, or what is simpler where it has no leaf form; else the naive Kernel,
// which takes none.
search::Scheduled allowed_default(Context& context, const SearchTask& task);

// Compiles what is scheduled into memory and store, and publishes the decision. What the worker could compile this
// process may be unable to: then it is not recorded, unless nothing else is left.
ir::Status record(Context& context, const SearchTask& task, const search::Scheduled& scheduled, Decision decision,
                  bool last_resort);
// Whether constants are packed as the default has them, where other ranges of the operator are to read them as well.
bool packs_as_default(const SearchTask& task, const ir::Kernel& scheduled, const search::Scheduled& by_default);
// What serves where nothing can be measured: the Schedule of a similar shape, `like`, if it applies, else the default.
ir::Result<SearchOutcome> record_unmeasured(Context& context, const SearchTask& task,
                                            const search::Scheduled& by_default,
                                            const std::optional<search::Schedule>& like, const ir::Status& why);
// The default instead of what is recorded, as a tie: it is known to take default_us.
ir::Status record_default(Context& context, const SearchTask& task, double default_us);
// The default, for the time being: it serves from the store, and is searched when there is time.
ir::Status record_unsearched(Context& context, const SearchTask& task);

}  // namespace lathe::runtime
