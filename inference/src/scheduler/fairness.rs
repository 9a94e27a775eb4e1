//! Whose turn it is, and when to come again: deficit round robin over tenants
//! (Shreedhar and Varghese 1996), charged by computed tokens, and the measured
//! pace at which the queue empties.

use std::sync::Arc;
use std::time::Duration;

/// Shortest and longest advice to a refused caller.
const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Tenants that have sequences here.
#[derive(Debug)]
pub(super) struct Tenants {
    /// Slots of tenants that left are used again.
    slots: Vec<Option<Tenant>>,
    /// Slot that is looked at first.
    turn: usize,
    quantum_tokens: i64,
}

#[derive(Debug)]
struct Tenant {
    name: Option<Arc<str>>,
    num_sequences: usize,
    /// Tokens that it may still have computed in this round.
    deficit_tokens: i64,
}

impl Tenants {
    pub(super) fn new(quantum_tokens: usize) -> Self {
        Self {
            slots: Vec::new(),
            turn: 0,
            quantum_tokens: i64::try_from(quantum_tokens).unwrap_or(i64::MAX).max(1),
        }
    }

    /// Counts a sequence of a tenant in, and returns the tenant's slot.
    pub(super) fn enter(&mut self, name: Option<&Arc<str>>) -> usize {
        let known = self
            .slots
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|t| t.name.as_ref() == name));
        let slot = known.unwrap_or_else(|| {
            let free = self.slots.iter().position(Option::is_none);
            let slot = free.unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            self.slots[slot] = Some(Tenant {
                name: name.cloned(),
                num_sequences: 0,
                deficit_tokens: 0,
            });
            slot
        });
        self.tenant(slot).num_sequences += 1;
        slot
    }

    /// Counts one more sequence of a tenant that is here.
    pub(super) fn enter_again(&mut self, slot: usize) {
        self.tenant(slot).num_sequences += 1;
    }

    /// Counts a sequence out; a tenant without any is forgotten.
    pub(super) fn leave(&mut self, slot: usize) {
        let tenant = self.tenant(slot);
        tenant.num_sequences -= 1;
        if tenant.num_sequences == 0 {
            self.slots[slot] = None;
        }
    }

    /// Charges computed tokens.
    pub(super) fn charge(&mut self, slot: usize, num_tokens: usize) {
        let tenant = self.tenant(slot);
        tenant.deficit_tokens = tenant
            .deficit_tokens
            .saturating_sub_unsigned(num_tokens as u64);
    }

    /// Returns the tenants that are eligible, those whose turn it is first. A
    /// new round begins when none of them has anything left.
    pub(super) fn order(&mut self, is_eligible: &[bool]) -> Vec<usize> {
        let num_slots = self.slots.len();
        let turn = self.turn;
        let mut order: Vec<usize> = (0..num_slots)
            .map(|offset| (turn + offset) % num_slots)
            .filter(|&slot| is_eligible[slot])
            .collect();
        let most = order
            .iter()
            .map(|&slot| self.tenant(slot).deficit_tokens)
            .max();
        if let Some(most) = most.filter(|&most| most <= 0) {
            let quantum = self.quantum_tokens;
            let credit = (1 - most / quantum) * quantum;
            for &slot in &order {
                let tenant = self.tenant(slot);
                tenant.deficit_tokens = tenant.deficit_tokens.saturating_add(credit);
            }
        }
        order.sort_by_key(|&slot| self.tenant(slot).deficit_tokens <= 0);
        order
    }

    /// Passes the turn on behind a tenant that was served.
    pub(super) fn pass(&mut self, slot: usize) {
        self.turn = (slot + 1) % self.slots.len();
    }

    pub(super) fn num_slots(&self) -> usize {
        self.slots.len()
    }

    #[cfg(test)]
    pub(super) fn num_in_use(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    fn tenant(&mut self, slot: usize) -> &mut Tenant {
        self.slots[slot]
            .as_mut()
            .expect("a tenant stays while it has sequences")
    }
}

/// Pace at which waiting sequences start.
#[derive(Debug)]
pub(super) struct DrainRate {
    /// Moving average between two starts while somebody waits.
    interval: Option<Duration>,
    /// Last start, or when the queue stopped being empty.
    since: Duration,
    num_refused_in_a_row: u32,
}

impl DrainRate {
    pub(super) fn new() -> Self {
        Self {
            interval: None,
            since: Duration::ZERO,
            num_refused_in_a_row: 0,
        }
    }

    /// The queue was empty and is not any more.
    pub(super) fn begin(&mut self, now: Duration) {
        self.since = now;
    }

    /// A sequence left the queue to start.
    pub(super) fn record_start(&mut self, now: Duration) {
        let sample = now.saturating_sub(self.since);
        self.interval = Some(match self.interval {
            Some(interval) => (interval * 7 + sample) / 8,
            None => sample,
        });
        self.since = now;
        self.num_refused_in_a_row = 0;
    }

    /// Returns when the next place that is not promised yet will be free. Each
    /// refused caller is told a later one, so that they do not come back at once.
    pub(super) fn refuse(&mut self, now: Duration, num_waiting: usize) -> Duration {
        self.num_refused_in_a_row = self.num_refused_in_a_row.saturating_add(1);
        let stalled = now.saturating_sub(self.since);
        let interval = self.interval.unwrap_or(MIN_RETRY_AFTER).max(stalled);
        let places = self.num_refused_in_a_row.min(num_waiting.max(1) as u32);
        interval
            .saturating_mul(places)
            .clamp(MIN_RETRY_AFTER, MAX_RETRY_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves tenants that always have work of a given size, and counts their tokens.
    fn serve(costs: &[usize], num_turns: usize) -> Vec<usize> {
        let mut tenants = Tenants::new(100);
        let slots: Vec<usize> = (0..costs.len())
            .map(|index| tenants.enter(Some(&index.to_string().into())))
            .collect();
        let mut served = vec![0; costs.len()];
        for _ in 0..num_turns {
            let slot = tenants.order(&vec![true; costs.len()])[0];
            let index = slots.iter().position(|&s| s == slot).expect("one of them");
            tenants.charge(slot, costs[index]);
            tenants.pass(slot);
            served[index] += costs[index];
        }
        served
    }

    #[test]
    fn tenants_get_equal_tokens_whatever_their_requests_cost() {
        for costs in [[10, 10, 10], [10, 100, 1000], [999, 7, 50]] {
            let served = serve(&costs, 20_000);
            let (least, most) = (served.iter().min(), served.iter().max());
            let spread = most.expect("three") - least.expect("three");
            assert!(spread <= 2 * 1000, "{costs:?}: {served:?}");
        }
    }

    #[test]
    fn equal_tenants_take_turns() {
        let mut tenants = Tenants::new(1_000_000);
        let a = tenants.enter(Some(&"a".into()));
        let b = tenants.enter(Some(&"b".into()));
        let mut order = Vec::new();
        for _ in 0..6 {
            let slot = tenants.order(&[true, true])[0];
            tenants.charge(slot, 1);
            tenants.pass(slot);
            order.push(slot);
        }
        assert_eq!(order, [a, b, a, b, a, b]);
    }

    #[test]
    fn a_tenant_that_left_leaves_nothing() {
        let mut tenants = Tenants::new(1);
        for index in 0..100 {
            let slot = tenants.enter(Some(&index.to_string().into()));
            tenants.leave(slot);
        }
        assert_eq!(tenants.num_slots(), 1);
    }

    #[test]
    fn refused_callers_are_spread_over_the_places_to_come() {
        let mut rate = DrainRate::new();
        rate.begin(Duration::ZERO);
        for second in 1..=20 {
            rate.record_start(Duration::from_secs(2 * second));
        }
        let now = Duration::from_secs(40);
        let told: Vec<u64> = (0..5).map(|_| rate.refuse(now, 3).as_secs()).collect();
        assert_eq!(
            told,
            [2, 4, 6, 6, 6],
            "two seconds a place, three places at most"
        );
        rate.record_start(Duration::from_secs(42));
        assert_eq!(rate.refuse(Duration::from_secs(42), 3).as_secs(), 2);
    }

    #[test]
    fn advice_is_between_a_second_and_a_minute() {
        let mut rate = DrainRate::new();
        rate.record_start(Duration::from_millis(1));
        assert_eq!(rate.refuse(Duration::from_millis(1), 1), MIN_RETRY_AFTER);
        assert_eq!(rate.refuse(Duration::from_secs(4000), 1), MAX_RETRY_AFTER);
    }
}
