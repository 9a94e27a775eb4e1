//! One rule a test, on schedules that can be read.

use super::*;

fn config() -> SchedulerConfig {
    SchedulerConfig {
        block_size: 4,
        num_blocks: 64,
        max_model_len: 200,
        max_num_batched_tokens: 32,
        max_seqs: 4,
        chunk_size: 16,
        max_prefill: 24,
        max_prefill_while_decoding: 8,
        max_decode: 4,
        ..SchedulerConfig::default()
    }
}

fn world(change: impl FnOnce(&mut SchedulerConfig)) -> World {
    let mut config = config();
    change(&mut config);
    World::new(config)
}

impl World {
    fn add(&mut self, prompt: &[TokenId], max_tokens: usize) -> SequenceId {
        self.submit(request(prompt, max_tokens))
            .expect("there is room")
    }

    fn add_of(&mut self, tenant: &str, family: u64) -> SequenceId {
        let request = SequenceRequest {
            tenant: Some(tenant.into()),
            ..request(&prompt(family, 8), 4)
        };
        self.submit(request).expect("there is room")
    }

    /// Runs a step and returns (sequence, rows, whether it samples).
    fn rows(&mut self) -> Vec<(SequenceId, usize, bool)> {
        let batch = self.step();
        self.verify();
        let rows = batch.entries.iter();
        rows.map(|e| (e.id, e.num_tokens, e.samples)).collect()
    }
}

/// A family whose text runs for at least this many tokens behind a prompt.
fn long_family(prompt_len: usize, num_tokens: usize) -> Vec<TokenId> {
    (100..200)
        .map(|family| prompt(family, prompt_len))
        .find(|prompt| text_alone(None, prompt, num_tokens).len() == prompt_len + num_tokens)
        .expect("most texts are long enough")
}

#[test]
fn a_prompt_is_computed_in_chunks_and_samples_at_its_end() {
    let mut world = world(|_| {});
    let id = world.add(&prompt(1, 37), 4);
    assert_eq!(world.rows(), [(id, 16, false)]);
    assert_eq!(world.rows(), [(id, 16, false)]);
    assert_eq!(world.rows(), [(id, 5, true)]);
    assert_eq!(world.rows(), [(id, 1, true)]);
}

#[test]
fn prefill_shares_the_budget_in_order_of_arrival() {
    let mut world = world(|_| {});
    let first = world.add(&prompt(1, 40), 4);
    let second = world.add(&prompt(2, 40), 4);
    assert_eq!(world.rows(), [(first, 16, false), (second, 8, false)]);
    assert_eq!(world.rows(), [(first, 16, false), (second, 8, false)]);
    assert_eq!(world.rows(), [(first, 8, true), (second, 16, false)]);
}

#[test]
fn decodes_come_first_and_shrink_prefill() {
    let mut world = world(|_| {});
    let first = world.add(&long_family(8, 6), 6);
    assert_eq!(world.rows(), [(first, 8, true)]);
    let second = world.add(&prompt(2, 20), 4);
    assert_eq!(world.rows(), [(first, 1, true), (second, 8, false)]);
    assert_eq!(world.rows(), [(first, 1, true), (second, 8, false)]);
    assert_eq!(world.rows(), [(first, 1, true), (second, 4, true)]);
}

#[test]
fn more_decodes_than_allowed_take_turns() {
    let mut world = world(|c| c.max_decode = 1);
    let first = world.add(&long_family(4, 6), 6);
    let second = world.add(&long_family(4, 6), 6);
    world.rows();
    let turns: Vec<_> = (0..4).map(|_| world.rows()[0].0).collect();
    assert_eq!(turns, [first, second, first, second]);
}

#[test]
fn no_more_prompts_than_allowed_are_computed_in_a_step() {
    let mut world = world(|c| c.max_prefill_seqs = 2);
    let ids: Vec<_> = (0..3)
        .map(|family| world.add(&prompt(family, 4), 2))
        .collect();
    assert_eq!(world.rows(), [(ids[0], 4, true), (ids[1], 4, true)]);
    let rows = world.rows();
    assert!(rows.contains(&(ids[2], 4, true)), "{rows:?}");
}

#[test]
fn a_cached_prefix_is_not_computed_again_and_the_last_token_always() {
    let mut world = world(|_| {});
    let tokens = prompt(1, 16);
    world.add(&tokens, 1);
    world.finish();
    let again = world.add(&tokens, 1);
    assert_eq!(world.rows(), [(again, 4, true)], "all but the last block");
    let longer = [tokens.as_slice(), &[7, 8]].concat();
    let longer = world.add(&longer, 2);
    assert_eq!(world.rows(), [(longer, 2, true)]);
    assert_eq!(world.scheduler.num_cached_tokens(longer), 16);
    let stats = world.scheduler.stats();
    assert_eq!(
        (stats.prefix_queries, stats.prefix_hits),
        (16 + 16 + 18, 12 + 16)
    );
    assert_eq!(stats.prompt_tokens, 16 + 16 + 18);
    world.finish();
    world.verify_empty();
}

#[test]
fn a_sequence_that_wants_all_logits_bypasses_the_cache() {
    let mut world = world(|_| {});
    let tokens = prompt(1, 12);
    world.add(&tokens, 1);
    world.finish();
    let queries = world.scheduler.stats().prefix_queries;
    let request = SequenceRequest {
        bypass_prefix_cache: true,
        ..request(&tokens, 1)
    };
    let id = world.submit(request).expect("there is room");
    assert_eq!(world.rows(), [(id, 12, true)]);
    assert_eq!(world.scheduler.stats().prefix_queries, queries);
    assert_eq!(
        world.scheduler.stats().num_cached_blocks,
        3,
        "duplicates are freed"
    );
}

#[test]
fn other_salts_share_nothing() {
    let mut world = world(|_| {});
    for salt in ["a", "b"] {
        let request = SequenceRequest {
            cache_salt: Some(salt.into()),
            ..request(&prompt(1, 12), 1)
        };
        let id = world.submit(request).expect("there is room");
        assert_eq!(world.rows(), [(id, 12, true)]);
    }
}

#[test]
fn what_can_never_fit_is_refused_at_once() {
    let mut world = world(|c| c.num_blocks = 10);
    let too_long = |world: &mut World, len, max_tokens| match world
        .submit(request(&prompt(1, len), max_tokens))
    {
        Err(Refusal::TooLong {
            num_tokens,
            max_tokens,
            limit,
        }) => Some((num_tokens, max_tokens, limit)),
        Err(refusal) => panic!("{refusal}"),
        Ok(_) => None,
    };
    assert_eq!(
        too_long(&mut world, 30, 11),
        None,
        "the last token is not computed"
    );
    let pool = "the pool of blocks";
    assert_eq!(too_long(&mut world, 30, 12), Some((42, 41, pool)));
    let context = "the context of the model";
    assert_eq!(too_long(&mut world, 100, 101), Some((201, 200, context)));
    let most = too_long(&mut world, 1, usize::MAX);
    assert_eq!(most, Some((usize::MAX, 200, context)));
    world.finish();
}

#[test]
fn an_empty_prompt_or_answer_is_a_bad_parameter() {
    let mut world = world(|_| {});
    for (request, name) in [
        (request(&[], 1), "prompt"),
        (request(&[1], 0), "max_tokens"),
    ] {
        let refusal = world.submit(request).expect_err("there is nothing to do");
        assert!(matches!(refusal, Refusal::Parameter { parameter, .. } if parameter == name));
    }
}

#[test]
fn a_full_queue_refuses_and_says_when_to_come_again() {
    let mut world = world(|c| {
        c.max_waiting = 2;
        c.max_seqs = 1;
    });
    let running = world.add(&long_family(4, 40), 40);
    world.rows();
    world.add(&prompt(2, 4), 4);
    world.add(&prompt(3, 4), 4);
    world.now += Duration::from_secs(5);
    let refusal = world.submit(request(&[1], 1)).expect_err("two wait");
    let expected = Refusal::QueueFull {
        num_waiting: 2,
        max_waiting: 2,
        retry_after: Duration::from_secs(5),
    };
    assert_eq!(refusal, expected, "nobody started for five seconds");
    world.abort(running);
    world.rows();
    world.add(&[1], 1);
}

#[test]
fn waiting_tokens_are_bounded_but_a_lone_prompt_is_taken() {
    let mut world = world(|c| {
        c.max_waiting_tokens = 20;
        c.max_seqs = 1;
    });
    world.add(&prompt(1, 30), 4);
    let refusal = world.submit(request(&[1], 1)).expect_err("30 tokens wait");
    assert!(matches!(refusal, Refusal::QueueFull { .. }));
    world.rows();
    world.add(&prompt(2, 20), 1);
    world.submit(request(&[1], 1)).expect_err("20 tokens wait");
}

#[test]
fn the_youngest_gives_way_and_begins_again() {
    let mut world = world(|c| c.num_blocks = 8);
    let first = world.add(&long_family(12, 16), 16);
    let second = world.add(&long_family(8, 16), 16);
    world.finish_watching(|world| {
        assert_ne!(world.state(first), SequenceState::Preempted);
    });
    let stats = world.scheduler.stats();
    assert!(stats.num_preemptions > 0);
    assert_eq!(stats.prompt_tokens, 20, "each prompt is counted once");
    assert!(world.text(first).is_some() && world.text(second).is_some());
    world.verify_empty();
}

impl World {
    fn finish_watching(&mut self, watch: impl Fn(&Self)) {
        while self.scheduler.has_work() {
            self.step();
            self.verify();
            watch(self);
        }
    }
}

#[test]
fn a_better_class_takes_blocks_from_a_worse_one_that_came_before() {
    let mut world = world(|c| c.num_blocks = 8);
    let tokens = long_family(8, 16);
    let worse = SequenceRequest {
        priority: 1,
        ..request(&tokens, 16)
    };
    let worse = world.submit(worse).expect("there is room");
    world.rows();
    let better = world.add(&long_family(12, 16), 16);
    world.finish_watching(|world| {
        assert_ne!(world.state(better), SequenceState::Preempted);
    });
    assert!(world.scheduler.stats().num_preemptions > 0);
    assert!(world.text(worse).is_some());
}

#[test]
fn admission_leaves_a_reserve_for_those_that_run() {
    let mut world = world(|c| c.num_blocks = 8);
    let first = world.add(&long_family(12, 8), 8);
    world.rows();
    let second = world.add(&prompt(2, 20), 1);
    assert_eq!(
        world.rows(),
        [(first, 1, true)],
        "four are free, five are needed"
    );
    assert_eq!(world.state(second), SequenceState::Waiting);
    world.abort(second);
    let third = world.add(&prompt(3, 12), 1);
    assert_eq!(world.rows().len(), 2, "three are needed and one is left");
    assert_ne!(world.state(third), SequenceState::Waiting);
}

#[test]
fn a_better_class_starts_first_and_age_betters_a_class() {
    let start_order = |wait: Duration| {
        let mut world = world(|c| c.max_seqs = 1);
        let old = SequenceRequest {
            priority: 2,
            ..request(&prompt(1, 4), 1)
        };
        let old = world.submit(old).expect("there is room");
        world.now += wait;
        world.add(&prompt(2, 4), 1);
        world.rows()[0].0 == old
    };
    assert!(!start_order(Duration::from_secs(19)));
    assert!(
        start_order(Duration::from_secs(20)),
        "two classes in twenty seconds"
    );
}

#[test]
fn tenants_take_turns_however_many_one_submits() {
    let mut world = world(|c| c.max_seqs = 1);
    for family in 0..6 {
        world.add_of("many", family);
    }
    let few = [world.add_of("few", 10), world.add_of("few", 11)];
    let mut order = Vec::new();
    while world.scheduler.has_work() {
        for (id, ..) in world.rows() {
            if order.last() != Some(&few.contains(&id)) || order.is_empty() {
                order.push(few.contains(&id));
            }
        }
    }
    assert_eq!(order, [false, true, false, true, false]);
}

#[test]
fn a_longer_cached_prefix_overtakes_a_bounded_number_of_times() {
    let started_before = |max_overtakes| {
        let mut world = world(|c| {
            c.max_seqs = 1;
            c.max_overtakes = max_overtakes;
        });
        let tokens = prompt(1, 12);
        world.add(&tokens, 1);
        world.finish();
        let first = world.add(&prompt(2, 12), 1);
        let num_hits = 5;
        for _ in 0..num_hits {
            world.add(&tokens, 1);
        }
        let mut num_before = 0;
        while world.rows()[0].0 != first {
            num_before += 1;
        }
        num_before
    };
    assert_eq!([0, 2, 9].map(started_before), [0, 2, 5]);
}

#[test]
fn a_small_one_passes_one_that_does_not_fit_a_bounded_number_of_times() {
    let mut world = world(|c| {
        c.num_blocks = 12;
        c.max_overtakes = 1;
        c.max_prefill_while_decoding = 24;
    });
    let running = world.add(&long_family(16, 20), 20);
    world.rows();
    let large = world.add(&prompt(2, 40), 1);
    let small = [world.add(&prompt(3, 4), 1), world.add(&prompt(4, 4), 1)];
    let rows = world.rows();
    assert_eq!(rows, [(running, 1, true), (small[0], 4, true)]);
    assert_eq!(world.rows(), [(running, 1, true)], "it was overtaken once");
    world.abort(running);
    let rows = world.rows();
    assert_eq!(rows[0].0, large);
}

#[test]
fn a_paused_sequence_keeps_its_blocks_for_a_while() {
    let mut world = world(|c| c.max_paused_steps = 3);
    let tokens = long_family(8, 20);
    let id = world.add(&tokens, 20);
    world.rows();
    world.pause(id, true);
    let other = world.add(&long_family(9, 20), 20);
    let states: Vec<_> = (0..5)
        .map(|_| {
            assert_eq!(world.rows()[0].0, other);
            world.state(id) == SequenceState::Running
        })
        .collect();
    assert_eq!(states, [true, true, true, false, false]);
    world.pause(id, false);
    world.finish();
    assert!(world.text(id).is_some());
}

#[test]
fn paused_sequences_do_not_keep_others_from_beginning() {
    let mut world = world(|c| c.max_seqs = 1);
    let id = world.add(&long_family(8, 20), 20);
    world.rows();
    world.pause(id, true);
    assert!(!world.scheduler.has_work());
    assert!(world.step().is_empty());
    let other = world.add(&prompt(2, 8), 1);
    assert_eq!(world.rows(), [(other, 8, true)]);
    assert_eq!(world.state(id), SequenceState::Preempted);
}

#[test]
fn an_abort_frees_blocks_in_any_state() {
    let mut world = world(|c| c.max_seqs = 1);
    let running = world.add(&prompt(1, 30), 4);
    let waiting = world.add(&prompt(2, 30), 4);
    world.rows();
    assert!(world.abort(waiting));
    assert!(world.abort(running));
    assert!(!world.abort(running));
    assert!(!world.scheduler.abort(SequenceId(99)));
    assert!(world.step().is_empty());
    world.verify_empty();
}

#[test]
fn an_entry_without_an_answer_is_computed_again() {
    let mut world = world(|_| {});
    let id = world.add(&prompt(1, 8), 2);
    let batch = world.scheduler.schedule(world.now);
    world.scheduler.update(&batch, &[]);
    assert_eq!(world.scheduler.schedule(world.now), batch);
    assert_eq!(world.state(id), SequenceState::Running);
}

#[test]
fn siblings_share_blocks_until_one_writes() {
    let mut world = world(|_| {});
    let parent = world.add(&long_family(10, 20), 20);
    assert!(world.fork(parent, 5).is_none(), "it does not run yet");
    world.rows();
    let sibling = world.fork(parent, 5).expect("there is a seat");
    world.verify();
    let shared = world.scheduler.block_table(parent).to_vec();
    assert_eq!(world.scheduler.block_table(sibling), shared);
    let batch = world.step();
    assert_eq!(
        batch.copies.len(),
        1,
        "one tail is copied, the other is the last"
    );
    let tables = [parent, sibling].map(|id| world.scheduler.block_table(id).to_vec());
    assert_eq!(tables[0][..2], tables[1][..2]);
    assert_ne!(tables[0][2], tables[1][2]);
    world.finish();
    world.verify_empty();
}

#[test]
fn a_limit_of_zero_is_an_error() {
    let config = SchedulerConfig {
        max_seqs: 0,
        ..config()
    };
    let error = Scheduler::new(config).expect_err("nothing could run");
    assert_eq!(error.to_string(), "max-seqs = 0: must be at least 1");
}
