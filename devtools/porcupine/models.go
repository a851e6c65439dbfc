package main

import (
	"fmt"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// moves are the states that may follow each state of a job.
type moves map[string][]string

// step gives the states that an object may have after an operation, or none if the answer contradicts the state.
type step func(state any, one operation) []any

func models(legal moves) map[string]porcupine.NondeterministicModel {
	return map[string]porcupine.NondeterministicModel{
		"submit": model(submission{}, submit),
		"hold":   model(limit{}, hold),
		"lease":  model(lease{}, useLease),
		"job":    model(job{}, legal.useJob),
	}
}

func model(initial any, take step) porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init:  func() []any { return []any{initial} },
		Step:  func(state, input, _ any) []any { return take(state, input.(operation)) },
		Equal: func(one, other any) bool { return one == other },
		DescribeOperation: func(input, _ any) string {
			one := input.(operation)
			return fmt.Sprintf("%s %v -> %v", one.Op, one.Args, one.Answer)
		},
	}
}

func text(from map[string]any, name string) string {
	found, _ := from[name].(string)
	return found
}

func number(from map[string]any, name string) int64 {
	found, _ := from[name].(float64)
	return int64(found)
}

func yes(from map[string]any, name string) bool {
	found, _ := from[name].(bool)
	return found
}

func only(state any, isRight bool) []any {
	if isRight {
		return []any{state}
	}
	return nil
}

// submission is what one idempotency key stands for; a job whose id no client has learned yet is "?".
type submission struct{ job, body string }

// submit: {"body"} is answered {"job", "replayed"} or {"refused": "other_body" | "in_progress"}.
func submit(state any, one operation) []any {
	known, body := state.(submission), text(one.Args, "body")
	isFirst := known.job == ""
	if one.isUnknown() {
		if isFirst {
			return []any{known, submission{"?", body}}
		}
		return []any{known}
	}
	made := submission{text(one.Answer, "job"), body}
	switch text(one.Answer, "refused") {
	case "other_body":
		return only(known, !isFirst && known.body != body)
	case "in_progress":
		return []any{known}
	}
	if isFirst {
		return only(made, !yes(one.Answer, "replayed"))
	}
	isSame := known.body == body && (known.job == made.job || known.job == "?")
	return only(made, isSame && yes(one.Answer, "replayed"))
}

// limit is how much may be held, and what is held: the ids with their amounts, as text, because states are compared.
type limit struct {
	most, used int64
	held       string
}

// hold: "limit" sets {"amount"}; "take" {"id", "amount"} is answered {"taken"}; "end" {"id", "amount"} {"ended"}.
func hold(state any, one operation) []any {
	now, amount, id := state.(limit), number(one.Args, "amount"), text(one.Args, "id")
	var after limit
	var happens, answer bool
	switch one.Op {
	case "limit":
		return []any{limit{amount, now.used, now.held}}
	case "take":
		happens, answer = now.used+amount <= now.most && !holds(now.held, id), yes(one.Answer, "taken")
		after = limit{now.most, now.used + amount, with(now.held, id)}
	case "end":
		happens, answer = holds(now.held, id), yes(one.Answer, "ended")
		after = limit{now.most, now.used - amount, without(now.held, id)}
	default:
		return nil
	}
	switch {
	case one.isUnknown() && happens:
		return []any{now, after}
	case one.isUnknown():
		return []any{now}
	case answer:
		return only(after, happens)
	}
	return only(now, !happens)
}

func holds(held, id string) bool { return strings.Contains(held, " "+id+" ") }

// with keeps the ids sorted: the same holds in another order are the same state, which the search visits once.
func with(held, id string) string {
	ids := append(strings.Fields(held), id)
	sort.Strings(ids)
	return " " + strings.Join(ids, "  ") + " "
}

func without(held, id string) string { return strings.Replace(held, " "+id+" ", "", 1) }

// lease is the newest tenure, and the bounds of its expiry: the exact instant is known to the database alone.
type lease struct {
	token             int64
	earliest, latest  int64
	isReturned, taken bool
}

// useLease: "acquire" {"ttl"} is answered {"token"}, 0 while another holds the lease; "renew" {"token", "ttl"} {"held"};
// "release" {"token"} {"held"}; "write" {"token"} {"accepted"}.
func useLease(state any, one operation) []any {
	now, ttl := state.(lease), number(one.Args, "ttl")
	mayBeFree := !now.taken || now.isReturned || one.lastInstant() >= now.earliest
	mayBeHeld := now.taken && !now.isReturned && one.Called <= now.latest
	isHolder := now.taken && number(one.Args, "token") == now.token
	until := lease{token: now.token, earliest: one.Called + ttl, latest: one.lastInstant(), taken: true}
	if !one.isUnknown() {
		until.latest += ttl
	}
	if one.Op == "acquire" {
		return acquire(now, until, one, mayBeFree, mayBeHeld)
	}
	holds, misses := isHolder && mayBeHeld, !isHolder || mayBeFree
	after := now
	switch one.Op {
	case "renew":
		after = until
	case "release":
		after.isReturned = true
	}
	if one.isUnknown() {
		return append(only(after, holds), now)
	}
	if yes(one.Answer, "held") || yes(one.Answer, "accepted") {
		return only(after, holds)
	}
	return only(now, misses)
}

func acquire(now, until lease, one operation, mayBeFree, mayBeHeld bool) []any {
	if one.isUnknown() {
		// Whoever took it never learned its token, and never uses it: the next one is greater all the same.
		until.token = now.token
		return append(only(until, mayBeFree), now)
	}
	until.token = number(one.Answer, "token")
	if until.token == 0 {
		return only(now, mayBeHeld)
	}
	return only(until, mayBeFree && until.token > now.token)
}

// job is the last state that is certain.
type job struct{ state string }

// useJob: "read" and "cancel" are answered {"state"}; "cancel" of a job that has ended {"conflict": its state}.
func (legal moves) useJob(state any, one operation) []any {
	now := state.(job)
	cancelled := []any{}
	for _, to := range []string{"cancelling", "cancelled"} {
		if legal.leads(now.state, to) {
			cancelled = append(cancelled, job{to})
		}
	}
	if one.isUnknown() {
		if one.Op == "cancel" {
			return append(cancelled, now)
		}
		return []any{now}
	}
	if conflict := text(one.Answer, "conflict"); conflict != "" {
		isEnd := len(legal[conflict]) == 0 && conflict != "cancelled"
		return only(job{conflict}, isEnd && legal.leads(now.state, conflict))
	}
	seen := text(one.Answer, "state")
	isLegal := legal.leads(now.state, seen)
	if one.Op == "cancel" {
		isLegal = isLegal && (seen == "cancelling" || seen == "cancelled")
	}
	return only(job{seen}, isLegal)
}

// leads is whether any number of moves lead from one state to the other. Every state may be the first.
func (legal moves) leads(from, to string) bool {
	if from == "" || from == to {
		return true
	}
	seen, open := map[string]bool{from: true}, []string{from}
	for len(open) > 0 {
		at := open[0]
		open = open[1:]
		for _, next := range legal[at] {
			if next == to {
				return true
			}
			if !seen[next] {
				seen[next] = true
				open = append(open, next)
			}
		}
	}
	return false
}
