// Package code takes the place of vale's parsers of source code: program.py says why.
package code

import (
	"errors"
	"regexp"

	"github.com/vale-cli/vale/v3/internal/core"
)

// Comment has the fields that vale's linter reads.
type Comment struct {
	Text, Source, Scope string
	Line, Offset        int
	Strip               []int
}

// Language has the fields that vale's linter reads.
type Language struct {
	Delims, Prefix *regexp.Regexp
	Queries        []core.Scope
	Cutset         string
	Padding        func(string) int
}

var errLeftOut = errors.New("this vale reads no source code")

// StripAt is called for comments only, and there are none.
func (Comment) StripAt(int) (int, bool) { return 0, false }

// GetLanguageFromExt refuses every language.
func GetLanguageFromExt(string) (*Language, error) { return nil, errLeftOut }

// GetComments refuses every source.
func GetComments([]byte, *Language) ([]Comment, error) { return nil, errLeftOut }
