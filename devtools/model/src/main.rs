//! Explores the protocol exhaustively within bounds, then each mutant until a promise breaks. Prints JSON.
//!
//!     protocol-model                 everything
//!     protocol-model guard NAME      how one mutant breaks, step by step
//!     protocol-model bounds NAME     one exploration
//!     protocol-model accept FILE…    whether steps of real runs are steps of the model

mod accept;
mod bounds;
mod guards;
mod leases;
mod liveness;
mod model;
mod seen;
mod state;
mod steps;
mod symmetry;

use bounds::{LARGE, SMALL, WITHOUT_ASSUMPTION};
use guards::{Guard, GUARDS};
use model::{Bounds, Protocol, Step};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

const THREADS: usize = 2;
const EVERY_JOB_ENDS: &str = "every job ends or waits for a lever";

/// What an exploration found: the first promise that is broken, and the steps that break it.
struct Found {
    states: usize,
    broken: Option<(&'static str, Vec<Step>)>,
}

fn safety(bounds: Bounds, dropped: Option<Guard>) -> Found {
    let checker = Protocol { bounds, dropped }.checker().threads(THREADS).finish_when(HasDiscoveries::Any);
    let checked = checker.spawn_bfs().join();
    let broken = checked.discoveries().into_iter().next().map(|(promise, path)| (promise, path.into_actions()));
    Found { states: checked.unique_state_count(), broken }
}

fn liveness(bounds: Bounds, dropped: Option<Guard>) -> Found {
    let explored = liveness::explore(&Protocol { bounds, dropped });
    Found { states: explored.states, broken: explored.trap.map(|steps| (EVERY_JOB_ENDS, steps)) }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => std::process::exit(i32::from(!explore_all())),
        ["guard", name] => show(name),
        ["bounds", name] => explore_one(name),
        ["accept", ref files @ ..] if !files.is_empty() => std::process::exit(i32::from(!accept::accept(files))),
        _ => {
            eprintln!("protocol-model [guard NAME | bounds NAME | accept FILE…]");
            std::process::exit(2);
        }
    }
}

fn explore_one(name: &str) {
    for bounds in SMALL.iter().chain(LARGE).filter(|bounds| bounds.name == name) {
        let began = Instant::now();
        let found = safety(*bounds, None);
        say(name, &found, began);
        for step in found.broken.map(|(_, steps)| steps).unwrap_or_default() {
            println!("  {step:?}");
        }
    }
}

/// Whether the protocol keeps its promises, needs its assumption, and every mutant breaks one.
fn explore_all() -> bool {
    let (mut states, mut breaks, mut explorations) = (0, 0, Vec::new());
    let runs = SMALL.iter().map(|bounds| (bounds, true)).chain(LARGE.iter().map(|bounds| (bounds, false)));
    for (bounds, is_small) in runs {
        let began = Instant::now();
        let mut found = safety(*bounds, None);
        states += found.states;
        if is_small && found.broken.is_none() {
            found.broken = liveness(*bounds, None).broken;
        }
        breaks += usize::from(found.broken.is_some());
        say(bounds.name, &found, began);
        explorations.push(format!(
            r#"{{"name": "{}", "states": {}, "liveness": {is_small}, "broken": {}}}"#,
            bounds.name,
            found.states,
            quoted(found.broken.as_ref().map(|(promise, _)| *promise))
        ));
    }
    let (lease_states, lease_broken) = leases::explore(None);
    states += lease_states;
    breaks += usize::from(lease_broken.is_some());
    let needed = safety(WITHOUT_ASSUMPTION, None).broken;
    say(WITHOUT_ASSUMPTION.name, &Found { states: 0, broken: needed.clone() }, Instant::now());
    let table = mutants();
    let caught = table.iter().filter(|row| row.promise.is_some()).count();
    let rows: Vec<String> = table.iter().map(Mutant::as_json).collect();
    println!(
        "{{\"model_states\": {states}, \"breaks\": {breaks}, \"mutants\": {}, \"mutants_caught\": {caught}, \"assumption_needed\": {},\n \"explorations\": [\n  {}],\n \"table\": [\n  {}]}}",
        table.len(),
        needed.is_some(),
        explorations.join(",\n  "),
        rows.join(",\n  ")
    );
    breaks == 0 && needed.is_some() && caught == table.len()
}

struct Mutant {
    name: &'static str,
    does: &'static str,
    code: &'static str,
    promise: Option<&'static str>,
    exploration: &'static str,
    steps: usize,
}

impl Mutant {
    fn as_json(&self) -> String {
        let Self { name, does, code, exploration, steps, .. } = self;
        let promise = quoted(self.promise);
        format!(
            r#"{{"guard": "{name}", "mutant": "{does}", "code": "{code}", "breaks": {promise}, "exploration": "{exploration}", "steps": {steps}}}"#
        )
    }
}

fn mutants() -> Vec<Mutant> {
    let mut table = Vec::new();
    for &(guard, name, does, code) in GUARDS {
        let began = Instant::now();
        let (exploration, found) = first_break(guard);
        say(name, &found, began);
        let steps = found.broken.as_ref().map_or(0, |(_, steps)| steps.len());
        table.push(Mutant { name, does, code, promise: found.broken.map(|(promise, _)| promise), exploration, steps });
    }
    for &(guard, name, does, code) in leases::GUARDS {
        let promise = leases::explore(Some(guard)).1;
        table.push(Mutant { name, does, code, promise, exploration: "leases", steps: 0 });
    }
    table
}

/// The first small exploration in which a promise breaks without this guard: safety first, because it is found sooner.
fn first_break(guard: Guard) -> (&'static str, Found) {
    for explore in [safety, liveness] {
        for bounds in SMALL {
            let found = explore(*bounds, Some(guard));
            if found.broken.is_some() {
                return (bounds.name, found);
            }
        }
    }
    ("", Found { states: 0, broken: None })
}

fn show(name: &str) {
    let Some(&(guard, ..)) = GUARDS.iter().find(|guard| guard.1 == name) else {
        eprintln!("no guard {name}; there are: {}", GUARDS.iter().map(|guard| guard.1).collect::<Vec<_>>().join(", "));
        std::process::exit(2);
    };
    let (exploration, found) = first_break(guard);
    let (promise, steps) = found.broken.unwrap_or(("nothing", vec![]));
    println!("{name} ({exploration}) breaks: {promise}");
    for step in steps {
        println!("  {step:?}");
    }
}

fn say(name: &str, found: &Found, began: Instant) {
    let told = found.broken.as_ref().map_or("keeps every promise".into(), |(promise, steps)| {
        format!("breaks after {} steps: {promise}", steps.len())
    });
    eprintln!("model: {name}: {told}, {} states, {:.1} s", found.states, began.elapsed().as_secs_f32());
}

fn quoted(text: Option<&str>) -> String {
    text.map_or("null".into(), |text| format!("\"{text}\""))
}
