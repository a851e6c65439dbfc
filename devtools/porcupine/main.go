// history-checker checks recorded histories for linearizability with Porcupine.
//
//	history-checker HISTORY.jsonl...
//
// It prints one JSON object and exits with 1 if a history is refused. The format of a history is described in
// devtools/porcupine/__init__.py.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const mostSeconds = 60

// operation is one line: what a client asked, when, and what it was told. Returned and Answer are absent if the client
// never learned the answer.
type operation struct {
	Kind     string         `json:"kind"`
	Object   string         `json:"object"`
	Client   int            `json:"client"`
	Op       string         `json:"op"`
	Args     map[string]any `json:"args"`
	Called   int64          `json:"called"`
	Returned *int64         `json:"returned"`
	Answer   map[string]any `json:"answer"`
	Moves    moves          `json:"moves"`
}

func (o operation) isUnknown() bool { return o.Returned == nil }

// lastInstant is when the operation took effect at the latest.
func (o operation) lastInstant() int64 {
	if o.Returned == nil {
		return math.MaxInt64
	}
	return *o.Returned
}

type verdict struct {
	Kind       string `json:"kind"`
	Object     string `json:"object"`
	Operations int    `json:"operations"`
	Result     string `json:"result"`
}

type report struct {
	Histories  int       `json:"histories"`
	Operations int       `json:"operations"`
	Refused    []verdict `json:"refused"`
}

func main() {
	told := report{Refused: []verdict{}}
	for _, path := range os.Args[1:] {
		if err := checkFile(path, &told); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(2)
		}
	}
	json.NewEncoder(os.Stdout).Encode(told)
	if len(told.Refused) > 0 {
		os.Exit(1)
	}
}

func checkFile(path string, told *report) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	histories, legal, err := read(file)
	if err != nil {
		return err
	}
	for _, history := range histories {
		result, err := check(history, legal)
		if err != nil {
			return err
		}
		told.Histories++
		told.Operations += len(history)
		if result != porcupine.Ok {
			first := history[0]
			told.Refused = append(told.Refused, verdict{first.Kind, first.Object, len(history), string(result)})
		}
	}
	return nil
}

// read returns the operations by kind and object, in the order of the first of each.
func read(source io.Reader) ([][]operation, moves, error) {
	byObject := map[[2]string][]operation{}
	legal := moves{}
	lines := bufio.NewScanner(source)
	lines.Buffer(nil, 1<<24)
	for number := 1; lines.Scan(); number++ {
		var one operation
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", number, err)
		}
		if one.Moves != nil {
			legal = one.Moves
			continue
		}
		if one.Returned != nil && *one.Returned < one.Called {
			return nil, nil, fmt.Errorf("line %d returns before it was called", number)
		}
		key := [2]string{one.Kind, one.Object}
		byObject[key] = append(byObject[key], one)
	}
	found := make([][]operation, 0, len(byObject))
	for _, history := range byObject {
		found = append(found, history)
	}
	sort.Slice(found, func(i, j int) bool { return found[i][0].Called < found[j][0].Called })
	return found, legal, lines.Err()
}

func check(history []operation, legal moves) (porcupine.CheckResult, error) {
	model, known := models(legal)[history[0].Kind]
	if !known {
		return "", fmt.Errorf("unknown kind %q", history[0].Kind)
	}
	operations := make([]porcupine.Operation, 0, len(history))
	for _, one := range history {
		if one.isUnknown() && (one.Op == "read" || one.Op == "write") {
			continue // it changes nothing and claims nothing; each would double the orders to try
		}
		operations = append(operations, porcupine.Operation{
			ClientId: one.Client, Input: one, Call: one.Called, Output: one, Return: one.lastInstant(),
		})
	}
	return porcupine.CheckOperationsTimeout(model.ToModel(), operations, mostSeconds*time.Second), nil
}
