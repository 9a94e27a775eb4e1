//! Any order of operations, under any limits.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    Submit {
        family: u64,
        len: usize,
        max_tokens: usize,
        priority: i32,
        tenant: u8,
        salt: u8,
        bypass: bool,
    },
    Step,
    StepWithAbort(usize),
    Abort(usize),
    AbortUnknown(u64),
    Fork(usize, TokenId),
    Pause(usize),
    Resume(usize),
    Clear,
    Wait(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let submit = (
        0..4_u64,
        1..24_usize,
        1..12_usize,
        0..3_i32,
        0..3_u8,
        0..3_u8,
        prop::bool::weighted(0.1),
    );
    prop_oneof![
        6 => submit.prop_map(|(family, len, max_tokens, priority, tenant, salt, bypass)| {
            Operation::Submit { family, len, max_tokens, priority, tenant, salt, bypass }
        }),
        14 => Just(Operation::Step),
        1 => any::<usize>().prop_map(Operation::StepWithAbort),
        1 => any::<usize>().prop_map(Operation::Abort),
        1 => (0..200_u64).prop_map(Operation::AbortUnknown),
        2 => (any::<usize>(), 1..VOCAB_SIZE as u32).prop_map(|(i, t)| Operation::Fork(i, t)),
        1 => any::<usize>().prop_map(Operation::Pause),
        2 => any::<usize>().prop_map(Operation::Resume),
        1 => Just(Operation::Clear),
        1 => (0..20_u64).prop_map(Operation::Wait),
    ]
}

prop_compose! {
    fn config()(
        block_size in 1..6_usize,
        num_blocks in 4..40_usize,
        max_num_batched_tokens in 1..40_usize,
        max_seqs in 1..8_usize,
        chunk_size in 1..20_usize,
        (max_prefill, max_prefill_while_decoding, max_prefill_seqs) in (1..40_usize, 1..10_usize, 1..4_usize),
        max_decode in 1..8_usize,
        max_waiting in 1..12_usize,
        max_overtakes in 0..4_u32,
        max_paused_steps in 0..6_u32,
        tenant_quantum_tokens in 1..40_usize,
        prefix_caching in prop::bool::weighted(0.8),
    ) -> SchedulerConfig {
        SchedulerConfig {
            block_size,
            num_blocks,
            max_model_len: 64,
            max_num_batched_tokens,
            max_seqs,
            chunk_size,
            max_prefill,
            max_prefill_while_decoding,
            max_prefill_seqs,
            max_decode,
            max_waiting,
            max_waiting_tokens: 150,
            aging: Duration::from_secs(10),
            tenant_quantum_tokens,
            max_overtakes,
            max_paused_steps,
            prefix_caching,
        }
    }
}

fn name(number: u8) -> Option<std::sync::Arc<str>> {
    (number > 0).then(|| number.to_string().into())
}

fn choose(world: &World, index: usize) -> Option<SequenceId> {
    let alive = world.alive();
    (!alive.is_empty()).then(|| alive[index % alive.len()])
}

fn check_limits(world: &World, batch: &ScheduledBatch) {
    let config = &world.scheduler.config;
    let sum: usize = batch.entries.iter().map(|entry| entry.num_tokens).sum();
    assert_eq!(sum, batch.num_tokens);
    assert!(sum <= config.max_num_batched_tokens);
    assert!(batch.entries.len() <= config.max_seqs);
    assert!(
        batch
            .entries
            .iter()
            .all(|e| e.num_tokens >= 1 && e.num_tokens <= config.chunk_size)
    );
    let ids: std::collections::BTreeSet<_> = batch.entries.iter().map(|e| e.id).collect();
    assert_eq!(
        ids.len(),
        batch.entries.len(),
        "each sequence is there once"
    );
    let is_decode = |e: &&ScheduledSequence| e.num_tokens == 1 && e.samples;
    let num_decodes = batch.entries.iter().filter(is_decode).count();
    assert!(sum - num_decodes <= config.max_prefill.max(config.max_prefill_while_decoding));
    assert!(batch.entries.len() - num_decodes <= config.max_prefill_seqs);
}

fn run(world: &mut World, operation: &Operation) {
    match *operation {
        Operation::Submit {
            family,
            len,
            max_tokens,
            priority,
            tenant,
            salt,
            bypass,
        } => {
            let request = SequenceRequest {
                priority,
                tenant: name(tenant),
                cache_salt: name(salt),
                bypass_prefix_cache: bypass,
                ..request(&prompt(family, len), max_tokens)
            };
            let config = &world.scheduler.config;
            let pool_tokens = config.num_blocks * config.block_size;
            let never_fits = len + max_tokens - 1 > pool_tokens;
            match world.submit(request) {
                Ok(_) => assert!(!never_fits),
                Err(Refusal::TooLong { .. }) => assert!(never_fits),
                Err(Refusal::QueueFull { retry_after, .. }) => {
                    assert!(retry_after >= Duration::from_secs(1));
                    assert!(world.scheduler.stats().num_waiting > 0);
                }
                Err(refusal) => panic!("{refusal}"),
            }
        }
        Operation::Step => {
            let batch = world.step();
            check_limits(world, &batch);
        }
        Operation::StepWithAbort(index) => {
            let id = choose(world, index);
            let batch = world.step_with_abort(id);
            check_limits(world, &batch);
        }
        Operation::Abort(index) => {
            if let Some(id) = choose(world, index) {
                assert!(world.abort(id));
                world.verify();
                assert!(!world.abort(id), "a second abort is nothing");
            }
        }
        Operation::AbortUnknown(number) => {
            let id = SequenceId(number);
            if world.state(id) == SequenceState::Finished {
                assert!(!world.scheduler.abort(id));
            }
        }
        Operation::Fork(index, token) => {
            if let Some(id) = choose(world, index) {
                world.fork(id, token);
            }
        }
        Operation::Pause(index) => {
            if let Some(id) = choose(world, index) {
                world.pause(id, true);
            }
        }
        Operation::Resume(index) => {
            if let Some(id) = choose(world, index) {
                world.pause(id, false);
            }
        }
        Operation::Clear => world.scheduler.clear_prefix_cache(),
        Operation::Wait(seconds) => world.now += Duration::from_secs(seconds),
    }
}

proptest! {
    // 250 cases of 400 operations on average: 100,000.
    #![proptest_config(ProptestConfig { max_shrink_iters: 5_000, ..ProptestConfig::with_cases(250) })]

    #[test]
    fn any_history_keeps_the_invariants_and_the_texts(
        config in config(),
        operations in prop::collection::vec(operation(), 300..500),
    ) {
        let mut world = World::new(config);
        for operation in operations {
            run(&mut world, &operation);
            world.verify();
        }
        world.finish();
        world.verify_empty();
    }
}

#[test]
fn ten_thousand_requests_with_aborts_leave_every_block_free() {
    let mut world = World::new(SchedulerConfig {
        block_size: 4,
        num_blocks: 96,
        max_model_len: 64,
        max_num_batched_tokens: 64,
        max_seqs: 16,
        chunk_size: 16,
        max_waiting: 32,
        ..SchedulerConfig::default()
    });
    let (mut num_submitted, mut num_aborted, mut num_finished, mut random) = (0, 0, 0, 1_u64);
    while num_submitted < 10_000 {
        random = mix(random, 7);
        let [a, b, c, d] = [0, 16, 32, 48].map(|shift| random >> shift & 0xffff);
        let request = request(&prompt(a % 8, 1 + (b % 30) as usize), 1 + (c % 10) as usize);
        if world.submit(request).is_ok() {
            num_submitted += 1;
        } else {
            world.step();
        }
        if d % 4 == 0
            && let Some(id) = choose(&world, c as usize)
        {
            assert!(world.abort(id));
            num_aborted += 1;
        }
        let ended = world
            .records
            .iter()
            .filter(|(_, record)| record.text.is_some());
        let ended: Vec<_> = ended.map(|(&id, _)| id).collect();
        num_finished += ended.len();
        for id in ended {
            world.records.remove(&id);
        }
    }
    num_finished += world.alive().len();
    world.finish();
    world.verify_empty();
    assert_eq!(num_aborted + num_finished, num_submitted);
    let stats = world.scheduler.stats();
    assert!(num_aborted > 1000 && num_finished > 1000 && stats.prefix_hits > 1000);
}
