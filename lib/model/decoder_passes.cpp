// How a pass goes through the sublayers: which steps are done on which rows, in what order, by which thread.

#include <algorithm>
#include <atomic>
#include <functional>
#include <vector>

#include "keel/model/decoder_pass.h"

namespace keel {

/// Sublayers that a thread takes a block of rows through at a time: between them it takes up another block, so that all
/// keep pace and the weights are shared, and the pass is asked whether to go on.
static constexpr int64_t kSublayersAtOnce = 4;

/// What is to be done for sublayer i, in this order. Rows at a time but for `show`, and for `mix` where blocks cut
/// sequences.
struct Decoder::ForwardStep {
  enum Kind { enter, in, mix, out, show, join };
  int64_t i;
  Kind kind;
  void advance() {
    i += kind == join ? 1 : 0;
    kind = kind == join ? in : static_cast<Kind>(kind + 1);
  }
  bool operator==(const ForwardStep&) const = default;
};

/// The same on the way back.
struct Decoder::BackwardStep {
  enum Kind { join, out, mix, in, leave, show };
  int64_t i;
  Kind kind;
  void advance() {
    i -= kind == show ? 1 : 0;
    kind = kind == show ? join : static_cast<Kind>(kind + 1);
  }
  bool operator==(const BackwardStep&) const = default;
};

namespace {

/// Whether a pass is to stop: one of its threads asks, all heed.
class StopFlag {
 public:
  explicit StopFlag(const std::function<bool()>& interrupted) : interrupted_(interrupted) {}

  bool is_up(int thread) {
    if (thread == 0 && interrupted_ && !is_up_ && interrupted_()) is_up_ = true;
    return is_up_;
  }

 private:
  const std::function<bool()>& interrupted_;
  std::atomic<bool> is_up_ = false;
};

}  // namespace

/// Takes every block of rows from step `begin` through stretches that end before each of `ends`, on one thread and piece
/// by piece, so that what a step leaves in the cache is what the next one reads; blocks do not wait for each other. False
/// if interrupted.
template <class Step, class OnRows>
bool Decoder::run_rows(const RowBlocks& blocks, const Step& begin, const std::vector<Step>& ends, OnRows on_rows) {
  StopFlag stop(interrupted_);
  const auto run = [&](Context& ctx, int64_t stretch, int64_t block, int thread) {
    blocks.for_pieces(block, [&](Rows rows) {
      for (Step step = stretch == 0 ? begin : ends[stretch - 1]; step != ends[stretch]; step.advance()) {
        if (stop.is_up(thread)) return;
        on_rows(ctx, step, rows);
      }
    });
  };
  if (blocks.count == 1) {
    for (int64_t stretch = 0; stretch < std::ssize(ends); ++stretch) run(ctx_, stretch, 0, 0);
    return !stop.is_up(0);
  }
  const auto always = [](int64_t, int64_t) { return true; };
  chains_.run(ctx_.team(), blocks.count, std::ssize(ends), always,
              [&](int64_t block, int64_t stretch, int thread) { run(ctx_.worker(thread), stretch, block, thread); });
  return !stop.is_up(0);
}

/// Where [begin, until) is cut for one thread after another; until is the last.
std::vector<Decoder::ForwardStep> Decoder::stretches(const ForwardStep& begin, const ForwardStep& until) {
  std::vector<ForwardStep> ends;
  int64_t next = begin.i + kSublayersAtOnce;
  for (ForwardStep step = begin; step != until; step.advance()) {
    if (step.i != next) continue;
    ends.push_back(step);
    next += kSublayersAtOnce;
  }
  ends.push_back(until);
  return ends;
}

bool Decoder::run_sublayers(const Pass& pass, int64_t first, int64_t end) {
  const ParameterBuffers& p = pass.parameters;
  const auto whole = [&](const ForwardStep& step) {
    return (step.kind == ForwardStep::mix && branch(step.i).mixes_rows() && !pass.by_sequences) ||
           (step.kind == ForwardStep::show && pass.observer.branch && !pass.recomputes);
  };
  const auto stops_at = [&](int64_t i) { return pass.recomputes && i + 1 == end; };
  const auto on_rows = [&](Context& ctx, const ForwardStep& step, Rows rows) {
    const int64_t i = step.i;
    switch (step.kind) {
      case ForwardStep::enter:
        return pass.recomputes ? stream_->restore(ctx, p, i, rows) : stream_->start(ctx, p, rows);
      case ForwardStep::in:
        return branch(i).forward_in(ctx, pass.call(plan_, i), rows, stream_->branch_input(i));
      case ForwardStep::mix:
        return branch(i).mix(ctx, pass.call(plan_, i), rows);
      case ForwardStep::out:
        return branch(i).forward_out(
            ctx, pass.call(plan_, i), rows, stream_->branch_input(i),
            stops_at(i) && !stream_->keeps_branch_output(i) ? AnyView<void, 2>() : stream_->branch_output(i));
      case ForwardStep::join:
        if (stops_at(i)) return stream_->keep_branch_output(ctx, i, rows);
        return stream_->join(ctx, p, i, rows);
      default:
        return;
    }
  };
  const ForwardStep last{end, ForwardStep::in};
  ForwardStep begin{first, ForwardStep::enter};
  while (true) {
    ForwardStep until = begin;
    while (until != last && !whole(until)) until.advance();
    if (!run_rows(pass.blocks, begin, stretches(begin, until), on_rows)) return false;
    if (until == last) return true;
    const int64_t i = until.i;
    if (until.kind == ForwardStep::mix) branch(i).mix(ctx_, pass.call(plan_, i), {0, pass.blocks.rows});
    if (until.kind == ForwardStep::show) pass.observer.branch(i, stream_->state(i), stream_->branch_output(i));
    begin = until;
    begin.advance();
  }
}

/// One step of sublayers of a group (BlockSums) on some rows.
void Decoder::backward_step(Context& ctx, const Pass& pass, int64_t group, const BackwardStep& step, Rows rows) {
  const ParameterBuffers& p = pass.parameters;
  const int64_t i = step.i;
  switch (step.kind) {
    case BackwardStep::join:
      return stream_->join_backward(ctx, p, i, rows);
    case BackwardStep::out:
      return branch(i).backward_out(ctx, pass.call(plan_, i, group), rows, stream_->branch_output_gradient(i));
    case BackwardStep::mix:
      return branch(i).mix_backward(ctx, pass.call(plan_, i, group), rows);
    case BackwardStep::in:
      stream_->restore(ctx, p, i, rows);
      return branch(i).backward_in(ctx, pass.call(plan_, i, group), rows, stream_->branch_output_gradient(i),
                                   stream_->branch_input(i), stream_->branch_input_gradient(i));
    case BackwardStep::leave:
      return stream_->input_backward(ctx, p, i, rows);
    case BackwardStep::show:
      return;
  }
}

void Decoder::add_mix_gradients(Context& ctx, const Pass& pass, int64_t group, int64_t i) {
  branch(i).add_mix_gradients(ctx, pass.call(plan_, i, group), pass.accumulate, stream_->branch_output_gradient(i));
  stream_->add_join_gradients(ctx, pass.parameters, i);
}

void Decoder::add_gradients(Context& ctx, const Pass& pass, int64_t group, int64_t i) {
  branch(i).add_gradients(ctx, pass.call(plan_, i, group), pass.accumulate, stream_->branch_output_gradient(i),
                          stream_->branch_input(i));
  stream_->add_input_gradients(ctx, pass.parameters, i);
}

/// The next group of sublayers below `end`: buffers are there for one that mixes rows and one that does not.
int64_t Decoder::first_of_group(int64_t first, int64_t end) const {
  int64_t i = end - 1;
  if (i > first && branch(i - 1).mixes_rows() != branch(i).mixes_rows()) --i;
  return i;
}

/// Whether run_backward_in_order can take the pass: nobody looks on, no thread needs the rows of others, and no sums over
/// rows are left but those that have room for kGroupsKept groups.
bool Decoder::runs_in_order(const Pass& pass) const {
  const bool has_bias = config_.mlp_bias || config_.attention_bias || config_.has_qkv_bias();
  const bool has_head_norms = std::any_of(plan_.sublayers.begin(), plan_.sublayers.end(), [](const Sublayer& sublayer) {
    return sublayer.branch == BranchKind::attention && sublayer.wiring.qkv != QkvNorm::none;
  });
  return pass.by_sequences && pass.block_sums != nullptr && !pass.observer.gradient && !has_bias && !has_head_norms;
}

/// Blocks of rows pass through one group of sublayers after another without waiting for each other. What they leave in the
/// sums of a group is added up once all are through it, while they are in later ones.
bool Decoder::run_backward_in_order(const Pass& pass, int64_t first, int64_t end) {
  std::vector<int64_t> ends{end};  // of the groups, and `first`
  while (ends.back() > first) ends.push_back(first_of_group(first, ends.back()));
  const int64_t groups = std::ssize(ends) - 1, blocks = pass.blocks.count;
  const int64_t adding = blocks;  // the chain that adds up
  StopFlag stop(interrupted_);
  const auto may_begin = [&](int64_t chain, int64_t group) {
    if (chain != adding) return group < chains_.done(adding) + kGroupsKept;
    for (int64_t block = 0; block < blocks; ++block) {
      if (chains_.done(block) <= group) return false;
    }
    return true;
  };
  const auto pass_block = [&](Context& ctx, int64_t group, int64_t block, int thread) {
    const BackwardStep until{ends[group + 1] - 1, BackwardStep::join};
    pass.blocks.for_pieces(block, [&](Rows rows) {
      for (BackwardStep step{ends[group] - 1, BackwardStep::join}; !stop.is_up(thread) && step != until;
           step.advance()) {
        backward_step(ctx, pass, group, step, rows);
      }
    });
  };
  const auto add_up = [&](Context& ctx, int64_t group, int thread) {
    for (int64_t i = ends[group] - 1; !stop.is_up(thread) && i >= ends[group + 1]; --i) {
      add_mix_gradients(ctx, pass, group, i);
      add_gradients(ctx, pass, group, i);
    }
  };
  chains_.run(ctx_.team(), blocks + 1, groups, may_begin, [&](int64_t chain, int64_t group, int thread) {
    if (chain == adding) return add_up(ctx_.worker(thread), group, thread);
    pass_block(ctx_.worker(thread), group, chain, thread);
  });
  return !stop.is_up(0);
}

bool Decoder::run_backward(const Pass& pass, int64_t first, int64_t end) {
  if (runs_in_order(pass)) return run_backward_in_order(pass, first, end);
  int64_t waiting = end;  // sublayers below it, down to the current one, wait for add_gradients
  const auto mixes_as_a_step = [&](int64_t i) { return branch(i).mixes_rows() && !pass.by_sequences; };
  const auto add_gradients_down_to = [&](int64_t lowest) {
    for (; waiting > lowest; --waiting) {
      const int64_t i = waiting - 1;
      if (!mixes_as_a_step(i)) add_mix_gradients(ctx_, pass, 0, i);
      add_gradients(ctx_, pass, 0, i);
    }
  };
  const auto needs_gradients_added = [&](int64_t i) {
    for (int64_t j = i; j < waiting; ++j) {
      if (!mixes_as_a_step(j) && branch(j).mixes_rows() == branch(i - 1).mixes_rows()) return true;
    }
    return false;
  };
  const auto whole = [&](const BackwardStep& step) {
    if (step.kind == BackwardStep::mix) return mixes_as_a_step(step.i);
    return step.kind == BackwardStep::show &&
           (pass.observer.gradient || (step.i > first && needs_gradients_added(step.i)));
  };
  const auto on_rows = [&](Context& ctx, const BackwardStep& step, Rows rows) {
    backward_step(ctx, pass, 0, step, rows);
  };
  const BackwardStep last{first - 1, BackwardStep::join};
  BackwardStep begin{end - 1, BackwardStep::join};
  while (true) {
    BackwardStep until = begin;
    while (until != last && !whole(until)) until.advance();
    if (!run_rows(pass.blocks, begin, std::vector{until}, on_rows)) return false;
    if (until == last) break;
    const int64_t i = until.i;
    add_gradients_down_to(until.kind == BackwardStep::mix ? i + 1 : i);
    if (until.kind == BackwardStep::mix) {
      add_mix_gradients(ctx_, pass, 0, i);
      branch(i).mix_backward(ctx_, pass.call(plan_, i), {0, pass.blocks.rows});
    } else if (pass.observer.gradient) {
      pass.observer.gradient(i, stream_->state_gradient(ctx_, pass.parameters, i));
    }
    begin = until;
    begin.advance();
  }
  add_gradients_down_to(first);
  return true;
}

}  // namespace keel
