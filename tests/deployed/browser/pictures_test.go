// SPDX-License-Identifier: Apache-2.0

package browser_test

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/once-lambda/once/tests/deployed/browser"
)

// maxPicture limits a picture, in bytes: the repository holds every version of it.
const maxPicture = 200 << 10

// The pictures of the documentation, see make screenshots: a worker was killed, and the
// client has sent its request again. With once the outcome is unknown, and the ledger has
// the evidence. Without it, there are two charges.
func TestPictures(t *testing.T) {
	t.Parallel()
	p := open(t, browser.View{}, shortLease)
	p.press("kill")
	p.wants("in progress", 1, "502", "200")
	p.Wait(`document.querySelector("#record .sentence").innerText.includes("its lease has ended")`)
	p.press("retry")
	p.wants("unknown", 1, "502", "200", "409")
	p.without(2, "502", "200", "201")
	p.Wait(`document.querySelector("#next").textContent.includes("Reconcile")`)
	shoot(t, p.Page, "playground", "#actions > li")
}

// shoot takes the three pictures of a page. The narrow one begins above an element.
// Without -pictures they are only measured.
func shoot(t *testing.T, p *browser.Page, name, top string) {
	t.Helper()
	dir := *pictures
	if dir == "" {
		dir = t.TempDir()
	}
	p.Eval(`document.activeElement.blur()`, nil)
	for kind, v := range map[string]browser.View{
		"light":  {Width: 1360, Height: 890, Scale: 1.5},
		"dark":   {Width: 1360, Height: 890, Scale: 1.5, Dark: true},
		"narrow": {Width: 360, Height: 800, Scale: 2},
	} {
		p.Show(v)
		p.Eval(`innerWidth > 400 ? scrollTo(0, 0) : document.querySelector('`+top+`').scrollIntoView() || scrollBy(0, -24)`, nil)
		file := filepath.Join(dir, name+"-"+kind+".png")
		p.Screenshot(file)
		if n := compress(t, file); n > maxPicture {
			t.Errorf("%s has %d bytes, want %d at most", file, n, maxPicture)
		}
	}
}

// compress writes a PNG file anew, with at most 256 colours, and returns its size.
func compress(t *testing.T, file string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, withPalette(picture)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return out.Len()
}

// withPalette returns a picture with at most 256 colours: the most frequent ones that
// differ visibly. The others become the nearest of these.
func withPalette(picture image.Image) *image.Paletted {
	opaque := picture.(*image.RGBA) // as Chromium writes it
	counts := map[color.RGBA]int{}
	for i := 0; i < len(opaque.Pix); i += 4 {
		counts[pixel(opaque, i)]++
	}
	var palette color.Palette
	for _, c := range slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return counts[b] - counts[a] }) {
		if len(palette) == 0 || len(palette) < 256 && differ(c, palette.Convert(c)) {
			palette = append(palette, c)
		}
	}
	nearest := map[color.RGBA]uint8{}
	for c := range counts {
		nearest[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(opaque.Rect, palette)
	for i := range small.Pix {
		small.Pix[i] = nearest[pixel(opaque, 4*i)]
	}
	return small
}

func pixel(picture *image.RGBA, i int) color.RGBA {
	return color.RGBA{picture.Pix[i], picture.Pix[i+1], picture.Pix[i+2], picture.Pix[i+3]}
}

// differ reports whether the eye sees a difference between two colours.
func differ(a, b color.Color) bool {
	r1, g1, b1, _ := a.RGBA()
	r2, g2, b2, _ := b.RGBA()
	apart := func(x, y uint32) int { return (int(x) - int(y)) >> 8 }
	r, g, bl := apart(r1, r2), apart(g1, g2), apart(b1, b2)
	return r*r+g*g+bl*bl > 100
}
