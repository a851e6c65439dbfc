//! The clusters and the network: everything that the gateway does not decide.

use super::dispatch::make;
use crate::guards::Guard;
use crate::model::Protocol;
use crate::state::*;

/// A request that was sent arrives: late, or once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    Create,
    Release(u8),
    Delete(u8),
}

pub fn deliver(model: &Protocol, s: &State, a: usize, request: Request) -> Option<State> {
    let (name, found) = (s.names[a], s.answering(a));
    let fits = |uid: u8, guard| found.phase != Phase::Absent && (found.uid == uid || !model.keeps(guard));
    let is_sent = match request {
        Request::Create => name.create && found.phase == Phase::Absent,
        Request::Release(uid) => {
            name.releases & (1 << uid) != 0 && fits(uid, Guard::PatchCarriesUid) && found.phase == Phase::Suspended
        }
        Request::Delete(uid) => {
            name.deletes & (1 << uid) != 0 && fits(uid, Guard::DeleteCarriesUid) && found.phase != Phase::Deleting
        }
    };
    if !is_sent {
        return None;
    }
    let mut next = s.clone();
    if found.foreign && request != Request::Create {
        next.breaks(Break::TouchedForeign);
    }
    match request {
        Request::Create => drop(make(model, &mut next, a, false)?),
        Request::Release(_) => unsuspend(&mut next, a),
        Request::Delete(_) => begin_deletion(model, &mut next, a),
    }
    Some(next)
}

/// The object that answers is unsuspended: from now on its pod may start.
pub fn unsuspend(next: &mut State, a: usize) {
    let found = next.answering(a);
    if found.phase != Phase::Suspended {
        return;
    }
    if !next.db.rows[a].committed {
        next.breaks(Break::RanUncommitted);
    }
    next.answering_mut(a).phase = Phase::Active;
}

/// Foreground deletion: the object stays until its pods are gone (`driver.delete_job`), and one may still start before
/// the garbage collector reaches it.
pub fn begin_deletion(model: &Protocol, next: &mut State, a: usize) {
    let found = next.answering(a);
    let bit = 1 << found.uid;
    let name = next.names[a];
    let may_have_pod = name.runs & bit != 0 || found.phase == Phase::Active && name.started & bit == 0;
    if may_have_pod && model.keeps(Guard::DeleteWaitsForPods) {
        next.answering_mut(a).phase = Phase::Deleting;
    } else {
        remove(next, a);
    }
}

fn remove(next: &mut State, a: usize) {
    let uid = next.answering(a).uid;
    *next.answering_mut(a) = Object::default();
    next.names[a].gone |= 1 << uid;
}

/// What happens in a cluster by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    PodStarts,
    Succeeds,
    Fails,
    /// The Job is declared failed while its pod still ends (Kubernetes before 1.31, or a pod on an unreachable node).
    FailsBeforeItsPod,
    /// Its deadline passes before a pod has started.
    FailsUnstarted,
    PodEnds,
    DeletionEnds,
}

pub fn live(s: &State, a: usize, there: bool, life: Life) -> Option<State> {
    let object = if there { s.names[a].there } else { s.names[a].here };
    let bit = 1u8 << object.uid;
    let runs = s.names[a].runs & bit != 0;
    let is_active = object.phase == Phase::Active && !object.foreign;
    // A suspended object is gone as soon as its deletion begins.
    let was_active = object.phase == Phase::Deleting && !object.foreign;
    let is_possible = match life {
        Life::PodStarts => (is_active || was_active) && s.names[a].started & bit == 0,
        Life::FailsUnstarted => is_active && s.names[a].started & bit == 0,
        Life::Succeeds | Life::Fails | Life::FailsBeforeItsPod => is_active && runs,
        Life::PodEnds => return end_pod(s, a, object),
        Life::DeletionEnds => object.phase == Phase::Deleting && !runs,
    };
    if !is_possible || matches!(life, Life::FailsBeforeItsPod | Life::FailsUnstarted) && s.faults.retries == 0 {
        return None;
    }
    let mut next = s.clone();
    let name = &mut next.names[a];
    let object = if there { &mut name.there } else { &mut name.here };
    match life {
        Life::PodStarts => {
            name.runs |= bit;
            name.started |= bit;
        }
        Life::Succeeds => {
            object.phase = Phase::Succeeded;
            name.runs &= !bit;
            name.over |= bit;
            name.succeeded |= bit;
        }
        Life::Fails => {
            object.phase = Phase::Failed;
            name.runs &= !bit;
            name.over |= bit;
            name.failed |= bit;
        }
        Life::FailsBeforeItsPod | Life::FailsUnstarted => {
            object.phase = Phase::Failed;
            name.failed |= bit;
        }
        Life::DeletionEnds => {
            *object = Object::default();
            name.gone |= bit;
        }
        Life::PodEnds => unreachable!(),
    }
    Some(next)
}

/// A pod whose Job is being deleted, is gone, or has failed comes to its end.
fn end_pod(s: &State, a: usize, object: Object) -> Option<State> {
    let left = s.names[a].runs & !if object.phase == Phase::Active { 1 << object.uid } else { 0 };
    if left == 0 {
        return None;
    }
    let mut next = s.clone();
    let name = &mut next.names[a];
    let bit = 1 << left.trailing_zeros();
    name.runs &= !bit;
    name.over |= bit;
    Some(next)
}

/// What others do to the clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stranger {
    /// `kubectl delete job`: in the background, so pods outlive the Job by their grace period.
    DeletesInBackground,
    /// `kubectl delete job --cascade=foreground`: the Job outlives its pods.
    DeletesInForeground,
    /// Creates a Job of this name.
    Plants,
    /// The control plane is restored to a snapshot without the object; its pod still runs until a kubelet notices.
    ForgetsObject,
    /// The control plane is restored to a snapshot in which the ended or deleted object still ran.
    RevivesObject,
}

pub fn interfere(model: &Protocol, s: &State, a: usize, how: Stranger) -> Option<State> {
    let (name, object) = (s.names[a], s.names[a].here);
    if name.home == 0 || s.is_impostor(a) {
        return None;
    }
    let mut next = s.clone();
    match how {
        Stranger::DeletesInBackground => {
            next.faults.deletions = next.faults.deletions.checked_sub(1)?;
            if object.phase == Phase::Absent || object.foreign {
                return None;
            }
            remove(&mut next, a);
        }
        Stranger::DeletesInForeground => {
            next.faults.deletions = next.faults.deletions.checked_sub(1)?;
            if matches!(object.phase, Phase::Absent | Phase::Deleting) || object.foreign {
                return None;
            }
            begin_deletion(model, &mut next, a);
        }
        Stranger::Plants => {
            next.faults.plants = next.faults.plants.checked_sub(1)?;
            if object.phase != Phase::Absent {
                return None;
            }
            make(model, &mut next, a, true)?;
        }
        Stranger::ForgetsObject => {
            next.faults.control_plane_restores = next.faults.control_plane_restores.checked_sub(1)?;
            if object.phase == Phase::Absent || object.foreign {
                return None;
            }
            remove(&mut next, a);
            next.names[a].unlisted |= 1 << object.uid;
            next.names[a].excused = true;
        }
        Stranger::RevivesObject => {
            next.faults.control_plane_restores = next.faults.control_plane_restores.checked_sub(1)?;
            let uid = s.db.rows[a].uid;
            if uid == 0 || name.started & (1 << uid) == 0 || object.phase != Phase::Absent || name.runs != 0 {
                return None;
            }
            next.names[a].here = Object { phase: Phase::Active, uid, foreign: false };
            next.names[a].gone &= !(1 << uid);
            next.names[a].runs |= 1 << uid;
            next.names[a].excused = true;
        }
    }
    Some(next)
}

/// The line to a cluster is cut or mended, or its address leads to another cluster and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    Cut,
    Mended,
    ToAnother,
    Back,
}

pub fn rewire(s: &State, cluster: u8, how: Line) -> Option<State> {
    let bit = State::bit(cluster);
    let mut next = s.clone();
    match how {
        Line::Cut if s.cut & bit == 0 => {
            next.faults.cuts = next.faults.cuts.checked_sub(1)?;
            next.cut |= bit;
        }
        Line::Mended if s.cut & bit != 0 => next.cut &= !bit,
        Line::ToAnother if s.impostor & bit == 0 => {
            next.faults.flips = next.faults.flips.checked_sub(1)?;
            next.impostor |= bit;
        }
        Line::Back if s.impostor & bit != 0 => next.impostor &= !bit,
        _ => return None,
    }
    Some(next)
}
