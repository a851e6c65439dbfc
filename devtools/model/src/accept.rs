//! Whether the steps of a real run are a path of the model: its own steps explain each event, in the order of the events.
//!
//! A run shows what changes in the rows, in the clusters and in the claims (`seen`). What it does not show is open: how a
//! request went, what a worker has read, which facts an observer has recorded. So the model may be in one of several
//! states. Each event leaves those that a path of hidden steps, and then the event's step, leads to. If none is left, the
//! event is refused: the code did what the model does not do.

use crate::model::{holds_cover_runs, runs_once, Bounds, Protocol, Step};
use crate::seen::Seen;
use crate::state::*;
use crate::steps::world::Line;
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashSet};

/// More states than this at once are refused: the run shows too little to be judged.
const MOST_STATES: usize = 300_000;
/// How many events before a refused one are shown.
const SHOWN: usize = 15;

/// One fault of each kind may always happen again. Control planes are not restored: such runs leave the model.
const FAULTS: Faults = Faults {
    cancels: 1,
    crashes: 1,
    losses: 1,
    cuts: 1,
    flips: 1,
    recalls: 1,
    retries: 1,
    refusals: 1,
    deletions: 1,
    displacements: 1,
    closings: 1,
    plants: 1,
    attestations: 1,
    control_plane_restores: 0,
    database_restores: 0,
};

/// One job may use every name, and a request may outlive a restore of the database.
const BOUNDS: Bounds = Bounds {
    name: "a real run",
    jobs: 1,
    clusters: 2,
    workers: WORKERS,
    tries: NAMES,
    faults: FAULTS,
    uids: 7,
    late_requests_survive_restores: true,
};

/// A state that the model may be in, and the visit of which each worker is at a step; 0 is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Possible {
    state: State,
    visits: [u64; WORKERS],
}

#[derive(Default)]
struct Tally {
    jobs: usize,
    refused: usize,
    steps: usize,
    states: usize,
    left: BTreeMap<String, usize>,
    /// What accepted steps are about beside their changes: why an attempt is stopped, that it is not the job's first, or elastic.
    about: BTreeMap<String, usize>,
}

/// Whether the model accepts the jobs of all files. Prints figures as JSON, and what it refuses.
pub fn accept(files: &[&str]) -> bool {
    let mut tally = Tally::default();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| fail(&format!("{file}: {error}")));
        let mut jobs: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|error| fail(&format!("{file}: {error}")));
            jobs.entry(event["job"].as_str().unwrap_or_default().to_owned()).or_default().push(event);
        }
        for (job, events) in jobs {
            tally.jobs += 1;
            if let Err(why) = Run::of(&events).follow(&events, &mut tally) {
                tally.refused += 1;
                println!("{file}: {job} is refused: {why}");
            }
        }
    }
    println!(
        "{}",
        json!({
            "runs": files.len(), "jobs": tally.jobs, "refused": tally.refused,
            "accepted": tally.jobs - tally.refused - tally.left.values().sum::<usize>(), "steps": tally.steps,
            "states": tally.states, "left_the_model": tally.left, "about": tally.about,
        })
    );
    tally.refused == 0
}

fn fail(why: &str) -> ! {
    eprintln!("protocol-model: {why}");
    std::process::exit(2);
}

struct Run {
    model: Protocol,
    seen: Seen,
    possible: HashSet<Possible>,
}

impl Run {
    fn of(events: &[Value]) -> Self {
        let mut faults = FAULTS;
        faults.database_restores = u8::from(events.iter().any(|event| event["kind"] == "restore"));
        let model = Protocol { bounds: Bounds { faults, ..BOUNDS }, dropped: None };
        let start = Possible { state: model.start(), visits: [0; WORKERS] };
        Self { seen: Seen::of(&start.state), possible: HashSet::from([start]), model }
    }

    fn follow(&mut self, events: &[Value], tally: &mut Tally) -> Result<(), String> {
        for (number, event) in events.iter().enumerate() {
            if event["kind"] == "leaves" {
                *tally.left.entry(event["what"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
                break;
            }
            let new = self.seen.after(&event["set"])?;
            let before = self.possible.len();
            self.possible = self.after(event, &new)?;
            tally.steps += 1;
            tally.states += self.possible.len();
            if self.possible.is_empty() {
                return Err(refusal(events, number, before));
            }
            self.seen = new;
            for about in event["about"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                *tally.about.entry(about.to_owned()).or_default() += 1;
            }
        }
        Ok(())
    }

    /// The states that the model may be in after the event.
    fn after(&self, event: &Value, new: &Seen) -> Result<HashSet<Possible>, String> {
        let kind = event["kind"].as_str().unwrap_or_default();
        let mut found = HashSet::new();
        if *new == self.seen && kind == "database" {
            return Ok(self.possible.clone());
        }
        let mut known = self.possible.clone();
        let mut open: Vec<Possible> = known.iter().cloned().collect();
        let mut steps = Vec::new();
        while let Some(one) = open.pop() {
            let seen = Seen::of(&one.state);
            if seen == *new && *new != self.seen {
                found.insert(one);
                continue;
            }
            if let Some(step) = itself(event, &one.state) {
                found.extend(
                    step.and_then(|step| self.taken(&one, step, event)).filter(|next| Seen::of(&next.state) == *new),
                );
            }
            steps.clear();
            self.model.steps(&one.state, &mut steps);
            for &step in &steps {
                if !is_free(step) || !self.matters(&one.state, step) {
                    continue;
                }
                let Some(next) = self.taken(&one, step, event) else { continue };
                let after = Seen::of(&next.state);
                let is_hidden = after == seen;
                if !is_hidden && (!after.is_between(&self.seen, new) || !may_show(kind, event, step, &one)) {
                    continue;
                }
                if known.len() > MOST_STATES {
                    return Err(format!("more than {MOST_STATES} states are possible at {}", event["what"]));
                }
                if known.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        Ok(found)
    }

    /// The state after the step, if it breaks no promise; what cannot matter any more is the same in all.
    fn taken(&self, one: &Possible, step: Step, event: &Value) -> Option<Possible> {
        let mut state = self.model.take(&one.state, step)?;
        state.faults = self.model.bounds.faults;
        if state.broken.is_some() || !runs_once(&self.model, &state) || !holds_cover_runs(&state) {
            return None;
        }
        crate::symmetry::forget(&self.model, &mut state);
        let mut visits = one.visits;
        for w in 0..WORKERS {
            if state.workers[w] == Worker::Idle {
                visits[w] = 0;
            } else if one.state.workers[w] == Worker::Idle {
                visits[w] = event["visit"].as_u64().unwrap_or(0);
            }
        }
        for cluster in 1..=BOUNDS.clusters as u8 {
            if !is_used(&state, cluster) {
                state.cut &= !State::bit(cluster);
                state.db.silent &= !State::bit(cluster);
            }
        }
        Some(Possible { state, visits })
    }

    /// The line to a cluster, and its silence, matter only where the job has something.
    fn matters(&self, s: &State, step: Step) -> bool {
        match step {
            Step::Rewire(cluster, Line::Cut | Line::Mended) => is_used(s, cluster),
            Step::LoseSight(cluster) | Step::Contact(cluster) => is_used(s, cluster),
            _ => true,
        }
    }
}

fn is_used(s: &State, cluster: u8) -> bool {
    (0..NAMES).any(|a| s.names[a].home == cluster && s.db.rows[a].state != AttemptState::Free && !s.db.rows[a].settled)
}

/// The one step that an event names, if it names one; and None in it if that is not possible in this state.
fn itself(event: &Value, s: &State) -> Option<Option<Step>> {
    match event["kind"].as_str()? {
        "claim" => {
            let a = event["attempt"].as_u64()? as usize;
            let idle = (0..WORKERS).find(|&w| s.workers[w] == Worker::Idle);
            Some(idle.filter(|_| a < NAMES).map(|w| Step::Claim(w, a)))
        }
        "backup" => Some(Some(Step::Save)),
        "restore" => Some(Some(Step::Restore)),
        _ => None,
    }
}

/// Whether a step may happen unnamed.
fn is_free(step: Step) -> bool {
    !matches!(step, Step::Claim(..) | Step::Save | Step::Restore)
}

/// Whether the step may be what an event of this kind shows: what a visit wrote is a step of its own worker.
fn may_show(kind: &str, event: &Value, step: Step, one: &Possible) -> bool {
    match (kind, step) {
        ("database", Step::Commit(w) | Step::HoldBack(w) | Step::Record(w)) => {
            event["visit"].as_u64().is_some_and(|visit| one.visits[w] == visit)
        }
        ("database", _) => !is_of_clusters(step) || matches!(step, Step::Compare(_)),
        ("cluster", _) => is_of_clusters(step),
        ("address", Step::Rewire(..)) => true,
        _ => false,
    }
}

fn is_of_clusters(step: Step) -> bool {
    matches!(
        step,
        Step::Create(..)
            | Step::Release(..)
            | Step::Delete(..)
            | Step::Deliver(..)
            | Step::Live(..)
            | Step::Interfere(..)
            | Step::Clean(_)
            | Step::Compare(_)
    )
}

fn refusal(events: &[Value], number: usize, before: usize) -> String {
    let first = number.saturating_sub(SHOWN);
    let lines = events[first..=number].iter().map(|event| {
        format!("\n  {:>10.4}  {}", event["at"].as_f64().unwrap_or(0.0), event["what"].as_str().unwrap_or_default())
    });
    format!(
        "no step of the model leads from its {before} possible states to the last of these:{}",
        lines.collect::<String>()
    )
}
