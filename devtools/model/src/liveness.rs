//! Whether every job can still end: from each reachable state, by fair steps alone, without further faults.
//!
//! Under strong fairness (a step that is possible again and again is taken again and again) a finite system reaches a
//! goal exactly if it can reach it from wherever it may go. Stateright checks `eventually` only on paths without
//! cycles, so this walks the graph itself, backwards from the goals.

use crate::model::{Protocol, Step};
use crate::state::*;
use crate::steps::dispatch::Call;
use crate::steps::world::{Life, Line};
use std::collections::hash_map::DefaultHasher;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

pub struct Explored {
    pub states: usize,
    /// The steps to a reachable state from which no fair steps lead to the goal.
    pub trap: Option<Vec<Step>>,
}

pub fn explore(model: &Protocol) -> Explored {
    let mut graph = Graph::from(model);
    graph.walk(model);
    let states = graph.reached_by.len();
    let trap = graph.first_trap().map(|at| graph.path_to(at));
    Explored { states, trap }
}

struct Graph {
    known: HashMap<u64, u32>,
    waiting: std::collections::VecDeque<(u32, State)>,
    /// The state and the step from which each state was reached first.
    reached_by: Vec<Option<(u32, Step)>>,
    is_goal: Vec<bool>,
    fair: Vec<(u32, u32)>,
}

impl Graph {
    fn from(model: &Protocol) -> Self {
        let mut graph = Self {
            known: HashMap::new(),
            waiting: Default::default(),
            reached_by: vec![],
            is_goal: vec![],
            fair: vec![],
        };
        graph.number_of(model, model.start(), None);
        graph
    }

    fn number_of(&mut self, model: &Protocol, state: State, from: Option<(u32, Step)>) -> u32 {
        let next = self.reached_by.len() as u32;
        let number = *self.known.entry(fingerprint(&state)).or_insert(next);
        if number == next {
            self.reached_by.push(from);
            self.is_goal.push(is_settled(model, &state));
            self.waiting.push_back((number, state));
        }
        number
    }

    fn walk(&mut self, model: &Protocol) {
        let mut steps = Vec::new();
        while let Some((from, state)) = self.waiting.pop_front() {
            steps.clear();
            model.steps(&state, &mut steps);
            for &step in &steps {
                if let Some(next) = model.apply(&state, step) {
                    let to = self.number_of(model, next, Some((from, step)));
                    if is_fair(&state, step) {
                        self.fair.push((to, from));
                    }
                }
            }
        }
    }

    /// Marks backwards what can reach a goal; the first state that cannot.
    fn first_trap(&mut self) -> Option<u32> {
        self.fair.sort_unstable();
        let mut can_end = self.is_goal.clone();
        let mut open: Vec<u32> = (0..can_end.len() as u32).filter(|&at| can_end[at as usize]).collect();
        while let Some(at) = open.pop() {
            let first = self.fair.partition_point(|&(to, _)| to < at);
            for &(_, from) in self.fair[first..].iter().take_while(|&&(to, _)| to == at) {
                if !std::mem::replace(&mut can_end[from as usize], true) {
                    open.push(from);
                }
            }
        }
        (0..can_end.len() as u32).find(|&at| !can_end[at as usize])
    }

    fn path_to(&self, mut at: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some((from, step)) = self.reached_by[at as usize] {
            steps.push(step);
            at = from;
        }
        steps.reverse();
        steps
    }
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Steps that happen sooner or later. Faults, clients, administrators and the ends of programs are not among them.
fn is_fair(s: &State, step: Step) -> bool {
    match step {
        Step::Place(..) | Step::Claim(..) | Step::Commit(_) | Step::Record(_) => true,
        Step::Create(_, call) | Step::Release(_, call) | Step::Look(_, call) | Step::Delete(_, call) => {
            call == Call::Answered || call == Call::Lost && s.cut != 0
        }
        Step::Live(_, _, life) => matches!(life, Life::PodStarts | Life::PodEnds | Life::DeletionEnds),
        Step::Report(a, _) => !s.is_cut(a) && !s.is_impostor(a),
        Step::Rewire(_, line) => matches!(line, Line::Back),
        Step::LoseSight(_)
        | Step::Contact(_)
        | Step::RegainSight(_)
        | Step::Clean(_)
        | Step::Compare(_)
        | Step::Open => true,
        Step::LookAtPods(_) | Step::Settle(_) | Step::SettleByPatience(_) => true,
        _ => false,
    }
}

/// Every job has ended, runs, or waits for a lever, every hold of an ended attempt has ended, and no lost run remains.
fn is_settled(model: &Protocol, s: &State) -> bool {
    let jobs_rest = (0..model.bounds.jobs).all(|job| rests(model, s, job));
    let leaves_nothing = (0..NAMES).all(|a| !is_left_running(s, a));
    jobs_rest && leaves_nothing && s.db.rows.iter().all(|row| row.hold != Hold::Pending || row.state.is_live())
}

/// A run that was attested as dead, and that its cluster shows again.
fn is_left_running(s: &State, a: usize) -> bool {
    let is_lost = s.db.rows[a].state == AttemptState::Lost && s.names[a].here.phase == Phase::Active;
    is_lost && !s.is_cut(a) && !s.is_impostor(a) && !s.db.standstill
}

fn rests(model: &Protocol, s: &State, job: usize) -> bool {
    let state = s.db.jobs[job].state;
    if state.is_ended() || waits_for_operator(model, s) {
        return true;
    }
    let live = model.bounds.names_of(job).find(|&a| s.db.rows[a].state.is_live());
    match live {
        Some(a) => runs_on(s, a, state) || waits_for_cluster(s, a) || is_beyond_bounds(model, s, a),
        None => is_out_of_places(model, s, job),
    }
}

/// The program runs, and nobody asked to stop it.
fn runs_on(s: &State, a: usize, job: JobState) -> bool {
    let row = s.db.rows[a];
    row.state == AttemptState::Running && row.stop == Stop::None && job == JobState::Running && s.names[a].runs != 0
}

/// Lever: the cluster answers again, or an administrator attests that the run is dead.
fn waits_for_cluster(s: &State, a: usize) -> bool {
    s.db.rows[a].state.is_unknown() && (s.is_cut(a) || s.is_impostor(a))
}

/// Lever: an operator opens dispatch with a note, or the cluster that could not be compared answers again.
fn waits_for_operator(model: &Protocol, s: &State) -> bool {
    let unreachable = (s.cut | s.impostor) & ((1 << model.bounds.clusters) - 1);
    s.db.standstill && (s.db.strangers != 0 || unreachable & !s.db.compared != 0)
}

/// Lever: a cluster answers again. Or the bound: no further attempt is modelled.
fn is_out_of_places(model: &Protocol, s: &State, job: usize) -> bool {
    let all = (1 << model.bounds.clusters) - 1;
    let is_used_up = model.bounds.names_of(job).take(model.bounds.tries).all(|a| s.names[a].home != 0);
    is_used_up || s.db.silent == all && (s.cut | s.impostor) == all
}

/// The bound: no further object of this name is modelled.
fn is_beyond_bounds(model: &Protocol, s: &State, a: usize) -> bool {
    s.names[a].uids >= model.bounds.uids
}
