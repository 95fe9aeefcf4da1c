package idempotenttest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/once-lambda/once/idempotent"
	"github.com/once-lambda/once/idempotent/driver"
)

// brokenChunks are faults in how a store handles large results.
var brokenChunks = []broken{
	{name: "The last chunk is missing", chunks: func(s *chunkShelf) {
		s.keep = func(_, piece []byte) []byte {
			if len(piece) < s.size {
				return nil
			}
			return bytes.Clone(piece)
		}
	}, caught: []string{"ChunksAreWhole", "FM34_ResultOf4KBAndOneByte", "FM34_ResultOf399KB", "FM34_ResultOf400KB", "FM34_ResultOf401KB", "FM34_ResultOf1MB", "FM34_ResultOf6MB"}},
	{name: "Large results are truncated at 400 KB", chunks: func(s *chunkShelf) {
		right := s.give
		s.give = func(pieces [][]byte) []byte { return right(pieces[:min(len(pieces), 401)]) }
	}, caught: []string{"ChunksAreWhole"}},
	{name: "A byte of a large result is altered", chunks: func(s *chunkShelf) {
		right := s.give
		s.give = func(pieces [][]byte) []byte {
			data := right(pieces)
			if len(pieces) > 100 {
				data[len(data)/2] ^= 1
			}
			return data
		}
	}, caught: []string{"ChunksAreWhole"}},
	{name: "Ten chunks or more are out of order", chunks: func(s *chunkShelf) {
		right := s.give
		s.give = func(pieces [][]byte) []byte {
			if len(pieces) > 11 {
				pieces[1], pieces[10] = pieces[10], pieces[1]
			}
			return right(pieces)
		}
	}, caught: []string{"ChunksAreWhole", "FM35_ChunkDeletedOrAltered"}},
	{name: "Chunks of all writes share their names", chunks: func(s *chunkShelf) {
		s.piece = func(id idempotent.RecordID, _ driver.Version, i int) string { return fmt.Sprint(id, i) }
	}, caught: []string{"ChunksAreApart", "ChunkMissing", "FM63_LateChunksAgainstAResolution"}},
	{name: "Chunks of all records share their names", chunks: func(s *chunkShelf) {
		s.piece = func(_ idempotent.RecordID, v driver.Version, i int) string { return fmt.Sprint(v, i) }
	}, caught: []string{"ChunksAreApart"}},
	{name: "A missing chunk is skipped", chunks: func(s *chunkShelf) {
		s.missing = func() error { return nil }
	}, caught: []string{"ChunkMissing"}},
	{name: "A missing chunk returns an error other than ErrNoRecord", chunks: func(s *chunkShelf) {
		s.missing = func() error { return errors.New("404") }
	}, caught: []string{"ChunkMissing"}},
	{name: "A repeated put appends to the chunks", chunks: func(s *chunkShelf) {
		s.keep = func(old, piece []byte) []byte { return slices.Concat(old, piece) }
	}, caught: []string{"ChunksAgain"}},
	{name: "A repeated put empties the chunks", chunks: func(s *chunkShelf) {
		s.keep = func(old, piece []byte) []byte {
			if old != nil {
				return nil
			}
			return bytes.Clone(piece)
		}
	}, caught: []string{"ChunksAgain"}},
	{name: "A chunk is returned as a record", chunks: func(s *chunkShelf) {
		right := s.piece
		s.piece = func(id idempotent.RecordID, v driver.Version, i int) string {
			if s.records[s.name(id)] == nil {
				s.records[s.name(id)] = &driver.Record{ID: id}
			}
			return right(id, v, i)
		}
	}, caught: []string{"ChunksAreApart"}},
	{name: "The store retains the caller's data", chunks: func(s *chunkShelf) {
		s.keep = func(_, piece []byte) []byte { return piece }
	}, caught: []string{"ChunksAreCopies"}},
	{name: "The store returns its own data without a copy", chunks: func(s *chunkShelf) {
		right := s.give
		s.size = 1 << 20
		s.give = func(pieces [][]byte) []byte {
			if len(pieces) == 1 {
				return pieces[0]
			}
			return right(pieces)
		}
	}, caught: []string{"ChunksAreCopies"}},
	{name: "PutChunks ignores the context", chunks: func(s *chunkShelf) { s.begin = ignoring(OpPutChunks) }, caught: []string{"ChunksContextEnds"}},
	{name: "GetChunks ignores the context", chunks: func(s *chunkShelf) { s.begin = ignoring(OpGetChunks) }, caught: []string{"ChunksContextEnds"}},
}
