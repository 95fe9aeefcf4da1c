// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"fmt"
	"strings"
	"time"
)

// Line is a line of a plot.
type Line struct {
	Name   string
	Points []Point
}

// Point is a point of a line. X is in units of the plot's axis.
type Point struct{ X, Y float64 }

// Axis is an axis of a plot, with its marks.
type Axis struct {
	Title string
	Marks []float64
}

// The colours can be read on a light and on a dark page.
var colours = []string{"#2f81f7", "#d4762c", "#2ea043"}

const width, height, left, bottom, top, right = 720.0, 360.0, 84.0, 52.0, 20.0, 36.0

// at returns where a value is on the axis, from 0 to 1.
func (a Axis) at(v float64) float64 {
	first, last := a.Marks[0], a.Marks[len(a.Marks)-1]
	return (v - first) / (last - first)
}

// SVG returns a plot of the lines.
func SVG(description string, x, y Axis, lines ...Line) string {
	var b strings.Builder
	px := func(v float64) float64 { return left + x.at(v)*(width-left-right) }
	py := func(v float64) float64 { return height - bottom - y.at(v)*(height-bottom-top) }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" role="img" font-family="sans-serif" font-size="13" fill="#808080">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", description)
	for _, m := range y.Marks {
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#808080" stroke-opacity=".25"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n", left, py(m), width-right, left-8, py(m)+4, Grouped(m))
	}
	for _, m := range x.Marks {
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", px(m), height-bottom+20, Grouped(m))
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">%s</text>`+"\n", (left+width-right)/2, height-10, x.Title)
	fmt.Fprintf(&b, `<text transform="translate(16 %g) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+height-bottom)/2, y.Title)
	for i, l := range lines {
		points := make([]string, 0, len(l.Points))
		for _, p := range l.Points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", px(p.X), py(p.Y)))
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="2.5" points="%s"/>`+"\n", colours[i], strings.Join(points, " "))
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end" fill="%s">%s</text>`+"\n", width-right-16, height-bottom-16-20*float64(i), colours[i], l.Name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// Grouped returns a whole number with commas.
func Grouped(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Served returns the line of what was served, with a point for each minute.
func Served(name string, seconds []Second) Line {
	l := Line{Name: name}
	for i := 0; i < len(seconds); i += int(time.Minute / time.Second) {
		l.Points = append(l.Points, Point{float64(i / 60), seconds[i].First})
	}
	return l
}
