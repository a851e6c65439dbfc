//! States that differ only by the numbers of jobs, clusters and workers are one state: the smallest of them.

use crate::guards::Guard;
use crate::model::Protocol;
use crate::state::*;

pub fn representative(model: &Protocol, mut s: State) -> State {
    forget(model, &mut s);
    let mut best = s;
    if model.bounds.workers == 2 {
        keep_smaller(&mut best, swap_workers);
    }
    if model.bounds.clusters == 2 {
        let other = swap_clusters(&best);
        consider(model, &mut best, other);
    }
    if model.bounds.jobs == 2 {
        let mut other = swap_jobs(&best);
        let mut third = swap_clusters(&other);
        if model.bounds.workers == 2 {
            keep_smaller(&mut other, swap_workers);
            keep_smaller(&mut third, swap_workers);
        }
        best = best.min(other);
        if model.bounds.clusters == 2 {
            best = best.min(third);
        }
    }
    best
}

fn consider(model: &Protocol, best: &mut State, mut other: State) {
    if model.bounds.workers == 2 {
        keep_smaller(&mut other, swap_workers);
    }
    if other < *best {
        *best = other;
    }
}

fn keep_smaller(s: &mut State, swap: fn(&State) -> State) {
    let other = swap(s);
    if other < *s {
        *s = other;
    }
}

/// What no later step can depend on becomes equal, so that fewer states differ.
pub fn forget(model: &Protocol, s: &mut State) {
    let is_final = s.faults.database_restores == 0 && s.faults.control_plane_restores == 0;
    for a in 0..NAMES {
        if is_final {
            forget_uids(model, s, a);
        }
        let row = &mut s.db.rows[a];
        if !row.state.is_ended() {
            continue;
        }
        if model.keeps(Guard::EndChecksToken) && model.keeps(Guard::CommitChecksToken) {
            row.token = 0;
        }
        if is_final && row.settled && model.keeps(Guard::EndedStaysEnded) {
            (row.stop, row.pod, row.told, row.sent, row.released) = (Stop::None, PodSeen::None, false, false, false);
            let name = &mut s.names[a];
            (name.over, name.failed) = (0, 0);
        }
    }
}

/// Facts about an object that no row, worker or cluster has any more, and requests about one that is gone.
fn forget_uids(model: &Protocol, s: &mut State, a: usize) {
    let held = s.workers.iter().filter(|worker| worker.attempt() == Some(a)).filter_map(|worker| worker.uid());
    let name = &mut s.names[a];
    let known =
        held.fold(1 << s.db.rows[a].uid | 1 << name.here.uid | 1 << name.there.uid, |all, uid| all | 1u8 << uid);
    let left = name.runs | known & !1;
    (name.started, name.over, name.failed, name.unlisted) =
        (name.started & left, name.over & left, name.failed & left, name.unlisted & left);
    name.gone &= known & !1;
    let present = (1 << name.here.uid | 1 << name.there.uid) & !1;
    if model.keeps(Guard::PatchCarriesUid) {
        name.releases &= present;
    }
    if model.keeps(Guard::DeleteCarriesUid) {
        name.deletes &= present;
    }
}

fn swap_workers(s: &State) -> State {
    let mut other = s.clone();
    other.workers.swap(0, 1);
    for row in &mut other.db.rows {
        row.token = flipped(row.token);
    }
    if let Some(saved) = &mut other.saved {
        for row in &mut saved.rows {
            row.token = flipped(row.token);
        }
    }
    other
}

fn swap_clusters(s: &State) -> State {
    let mut other = s.clone();
    for name in &mut other.names {
        name.home = flipped(name.home);
    }
    (other.cut, other.impostor) = (mirrored(s.cut), mirrored(s.impostor));
    mirror_masks(&mut other.db);
    if let Some(saved) = &mut other.saved {
        mirror_masks(saved);
    }
    other
}

fn swap_jobs(s: &State) -> State {
    let mut other = s.clone();
    swap_rows(&mut other.db);
    if let Some(saved) = &mut other.saved {
        swap_rows(saved);
    }
    let (first, second) = other.names.split_at_mut(TRIES);
    first.swap_with_slice(second);
    for worker in &mut other.workers {
        if let Some(a) = worker.attempt() {
            *worker = worker.with_attempt(((a + TRIES) % NAMES) as u8);
        }
    }
    other
}

fn swap_rows(db: &mut Database) {
    db.jobs.swap(0, 1);
    let (first, second) = db.rows.split_at_mut(TRIES);
    first.swap_with_slice(second);
}

fn mirror_masks(db: &mut Database) {
    db.silent = mirrored(db.silent);
    db.compared = mirrored(db.compared);
    db.strangers = mirrored(db.strangers);
}

/// 1 and 2 change places; 0 stays.
fn flipped(number: u8) -> u8 {
    if number == 0 {
        0
    } else {
        3 - number
    }
}

fn mirrored(mask: u8) -> u8 {
    (mask & 1) << 1 | mask >> 1
}
