/*
 * The picture is a grid: columns of equal time, a row for each SM, and two rows for the copy
 * engines. A cell has the colour of the tenant that held most of that SM in that time, paler the
 * less of it was held in all. Neighbours that look alike become one rectangle, first along time,
 * then over SMs; so a million kernels cost what the eye can see, not what happened.
 *
 * Holds are kept as they come, but those of one tenant that follow each other at the same SMs
 * become one when the gap is small against nothing at all: they must touch.
 */
#include "sched/sim/svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS   1200u
#define ROW_PX    3.0 /* of an SM, as far as that gives the chart a sane height */
#define CHART_MIN 160.0
#define CHART_MAX 660.0
#define LANE_PX   18.0
#define LEFT_PX   80.0
#define TOP_PX    46.0
#define LEGEND    24u /* tenants named below the picture */
#define SHADES    8   /* steps of paleness */
#define NOBODY    UINT32_MAX

struct piece {
    uint64_t from_ns;
    uint64_t to_ns;
    uint32_t tenant;
    uint16_t row_first;
    uint16_t row_count;
    float share;
};

/* What a cell looks like. */
struct cell {
    uint32_t tenant; /* NOBODY: empty */
    uint32_t shade;  /* 1 .. SHADES */
};

struct weir_sim_svg {
    const struct weir_sim_load *load;
    uint32_t sms;
    struct piece *pieces;
    size_t n_pieces, cap_pieces;
    bool is_short; /* of memory */
};

enum weir_status weir_sim_svg_create(const struct weir_sim_load *load, uint32_t sms,
                                     struct weir_sim_svg **ret_svg)
{
    struct weir_sim_svg *svg = calloc(1, sizeof *svg);
    if (!svg) {
        return WEIR_ERR_NO_MEMORY;
    }
    svg->load = load;
    svg->sms = sms;
    *ret_svg = svg;
    return WEIR_OK;
}

void weir_sim_svg_destroy(struct weir_sim_svg *svg)
{
    if (svg) {
        free(svg->pieces);
    }
    free(svg);
}

static bool continues(const struct piece *last, const struct piece *next)
{
    return last->tenant == next->tenant && last->to_ns == next->from_ns &&
           last->row_first == next->row_first && last->row_count == next->row_count &&
           last->share == next->share;
}

static void add(struct weir_sim_svg *svg, struct piece piece)
{
    if (svg->n_pieces && continues(&svg->pieces[svg->n_pieces - 1], &piece)) {
        svg->pieces[svg->n_pieces - 1].to_ns = piece.to_ns;
        return;
    }
    if (svg->n_pieces == svg->cap_pieces) {
        size_t cap = svg->cap_pieces ? 2 * svg->cap_pieces : 1024;
        struct piece *pieces = realloc(svg->pieces, cap * sizeof *pieces);
        if (!pieces) {
            svg->is_short = true;
            return;
        }
        svg->pieces = pieces;
        svg->cap_pieces = cap;
    }
    svg->pieces[svg->n_pieces++] = piece;
}

void weir_sim_svg_span(struct weir_sim_svg *svg, const struct weir_sim_span *span)
{
    bool is_up = span->class == WEIR_SCHED_H2D;
    if ((is_up || span->class == WEIR_SCHED_D2H) && span->to_ns > span->from_ns) {
        add(svg, (struct piece){.from_ns = span->from_ns,
                                .to_ns = span->to_ns,
                                .tenant = span->tenant,
                                .row_first = (uint16_t)(svg->sms + !is_up),
                                .row_count = 1,
                                .share = 1});
    }
}

void weir_sim_svg_hold(struct weir_sim_svg *svg, const struct weir_sim_hold *hold)
{
    add(svg, (struct piece){.from_ns = hold->from_ns,
                            .to_ns = hold->to_ns,
                            .tenant = (uint32_t)hold->owner,
                            .row_first = (uint16_t)hold->sm_first,
                            .row_count = (uint16_t)hold->sm_count,
                            .share = hold->share});
}

/* ------------------------------------------------------------------ the grid */

struct grid {
    struct cell *cells; /* [row * COLUMNS + column] */
    double *amounts;    /* of one column: [slot * rows + row] */
    uint32_t *slot_of;  /* of a tenant, in this column; NOBODY: none yet */
    uint32_t *tenants;  /* of the slots */
    uint32_t n_slots, cap_slots;
    uint32_t rows;
    double column_ns;
    uint64_t from_ns;
};

static void grid_finish(struct grid *g)
{
    free(g->cells);
    free(g->amounts);
    free(g->slot_of);
    free(g->tenants);
}

static bool grid_make(const struct weir_sim_svg *svg, uint64_t from_ns, uint64_t to_ns,
                      struct grid *g)
{
    *g = (struct grid){
        .rows = svg->sms + 2, .column_ns = (double)(to_ns - from_ns) / COLUMNS, .from_ns = from_ns};
    g->cells = calloc((size_t)g->rows * COLUMNS, sizeof *g->cells);
    g->slot_of = malloc((svg->load->n_tenants + 1u) * sizeof *g->slot_of);
    if (g->slot_of) {
        memset(g->slot_of, 0xff, (svg->load->n_tenants + 1u) * sizeof *g->slot_of);
    }
    return g->cells && g->slot_of;
}

/* The slot of a tenant in this column. NULL: out of memory. */
static double *slot(struct grid *g, uint32_t tenant)
{
    if (g->slot_of[tenant] == NOBODY) {
        if (g->n_slots == g->cap_slots) {
            uint32_t cap = g->cap_slots ? 2 * g->cap_slots : 16;
            double *amounts = realloc(g->amounts, (size_t)cap * g->rows * sizeof *amounts);
            g->amounts = amounts ? amounts : g->amounts;
            uint32_t *tenants = realloc(g->tenants, cap * sizeof *tenants);
            g->tenants = tenants ? tenants : g->tenants;
            if (!amounts || !tenants) {
                return NULL;
            }
            g->cap_slots = cap;
        }
        memset(g->amounts + (size_t)g->n_slots * g->rows, 0, g->rows * sizeof *g->amounts);
        g->tenants[g->n_slots] = tenant;
        g->slot_of[tenant] = g->n_slots++;
    }
    return g->amounts + (size_t)g->slot_of[tenant] * g->rows;
}

/* What was added up in a column becomes its cells. */
static void settle_column(struct grid *g, uint32_t column)
{
    for (uint32_t row = 0; row < g->rows; row++) {
        double most = 0, all = 0;
        uint32_t who = NOBODY;
        for (uint32_t s = 0; s < g->n_slots; s++) {
            double amount = g->amounts[(size_t)s * g->rows + row];
            all += amount;
            if (amount > most) {
                most = amount;
                who = g->tenants[s];
            }
        }
        uint32_t shade = (uint32_t)ceil(fmin(all / g->column_ns, 1) * SHADES - 1e-6);
        g->cells[(size_t)row * COLUMNS + column] =
            (struct cell){shade ? who : NOBODY, who == NOBODY ? 0 : shade};
    }
    for (uint32_t s = 0; s < g->n_slots; s++) {
        g->slot_of[g->tenants[s]] = NOBODY;
    }
    g->n_slots = 0;
}

static int by_start(const void *left, const void *right)
{
    const struct piece *a = left;
    const struct piece *b = right;
    return a->from_ns < b->from_ns ? -1 : a->from_ns > b->from_ns;
}

/* Add a piece to the column [from, to); true: it goes on behind it. */
static bool add_to_column(struct grid *g, const struct piece *piece, double from, double to,
                          bool *is_short)
{
    double begin = fmax((double)piece->from_ns, from);
    double end = fmin((double)piece->to_ns, to);
    if (end > begin) {
        double *amounts = slot(g, piece->tenant);
        if (!amounts) {
            *is_short = true;
            return false;
        }
        for (uint32_t row = piece->row_first; row < piece->row_first + (uint32_t)piece->row_count;
             row++) {
            amounts[row] += (end - begin) * (double)piece->share;
        }
    }
    return (double)piece->to_ns > to;
}

/* Fill all cells. sorted: pieces by their beginning; live: room for as many indices. */
static bool fill_grid(struct grid *g, const struct piece *sorted, size_t n, size_t *live)
{
    size_t next = 0, n_live = 0;
    bool is_short = false;
    for (uint32_t column = 0; column < COLUMNS; column++) {
        double from = (double)g->from_ns + column * g->column_ns;
        double to = from + g->column_ns;
        size_t kept = 0;
        while (next < n && (double)sorted[next].from_ns < to) {
            live[n_live++] = next++;
        }
        for (size_t i = 0; i < n_live; i++) {
            if (add_to_column(g, &sorted[live[i]], from, to, &is_short)) {
                live[kept++] = live[i];
            }
        }
        n_live = kept;
        settle_column(g, column);
    }
    return !is_short;
}

/* ------------------------------------------------------------------ drawing */

static void put_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&' || c == '"' || c < 0x20 || c > 0x7e) {
            fprintf(out, "&#%u;", c < 0x20 || c > 0x7e ? '?' : c);
        } else {
            fputc(c, out);
        }
    }
}

static void put_name(const struct weir_sim_svg *svg, FILE *out, uint32_t tenant)
{
    if (svg->load->tenants[tenant].name[0]) {
        put_text(out, svg->load->tenants[tenant].name);
    } else {
        fprintf(out, "tenant %u", tenant + 1);
    }
}

/* Neighbours far apart on the colour wheel: steps of the golden angle. */
static void put_colour(FILE *out, uint32_t tenant)
{
    double hue = fmod(210 + tenant * 137.508, 360);
    fprintf(out, "hsl(%.0f,%u%%,%u%%)", hue, 62 + tenant / 7 % 3 * 12, 46 - tenant / 21 % 3 * 9);
}

static const char *unit_of(double ns, double *ret_factor)
{
    *ret_factor = ns >= 1e9 ? 1e-9 : ns >= 1e6 ? 1e-6 : ns >= 1e3 ? 1e-3 : 1;
    return ns >= 1e9 ? "s" : ns >= 1e6 ? "ms" : ns >= 1e3 ? "us" : "ns";
}

struct layout {
    double row_px;
    double chart_px;
    double lanes_top;
    double bottom;
};

static double row_top(const struct layout *l, uint32_t row, uint32_t sms)
{
    return row < sms ? TOP_PX + row * l->row_px : l->lanes_top + (row - sms) * (LANE_PX + 4);
}

static void put_rect(const struct weir_sim_svg *svg, FILE *out, const struct grid *g,
                     const struct layout *l, uint32_t row, uint32_t rows, uint32_t column,
                     uint32_t columns)
{
    struct cell cell = g->cells[(size_t)row * COLUMNS + column];
    double factor;
    double from = (double)g->from_ns + column * g->column_ns;
    const char *unit = unit_of((double)g->from_ns + COLUMNS * g->column_ns, &factor);
    double height = row < svg->sms ? rows * l->row_px : LANE_PX;
    fprintf(out, "<rect x=\"%.1f\" y=\"%.2f\" width=\"%u\" height=\"%.2f\" class=\"c%u\"",
            LEFT_PX + column, row_top(l, row, svg->sms), columns, height, cell.tenant);
    if (cell.shade < SHADES) {
        fprintf(out, " fill-opacity=\"%.3f\"", (double)cell.shade / SHADES);
    }
    fputs("><title>", out);
    put_name(svg, out, cell.tenant);
    fprintf(out, ", %.6g to %.6g %s", from * factor, (from + columns * g->column_ns) * factor,
            unit);
    if (row < svg->sms) {
        fprintf(out, ", SM %u to %u, %u %% held", row, row + rows - 1, 100 * cell.shade / SHADES);
    }
    fputs("</title></rect>\n", out);
}

static bool is_same(const struct grid *g, uint32_t row, uint32_t column, struct cell cell)
{
    const struct cell *other = &g->cells[(size_t)row * COLUMNS + column];
    return other->tenant == cell.tenant && other->shade == cell.shade;
}

/* One rectangle from the first cell that is not drawn; drawn cells become empty. */
static void draw_from(const struct weir_sim_svg *svg, FILE *out, struct grid *g,
                      const struct layout *l, uint32_t row, uint32_t column)
{
    struct cell cell = g->cells[(size_t)row * COLUMNS + column];
    uint32_t columns = 1, rows = 1;
    uint32_t row_end = row < svg->sms ? svg->sms : row + 1;
    while (column + columns < COLUMNS && is_same(g, row, column + columns, cell)) {
        columns++;
    }
    for (bool is_alike = true; is_alike && row + rows < row_end; rows += is_alike) {
        for (uint32_t c = column; c < column + columns && is_alike; c++) {
            is_alike = is_same(g, row + rows, c, cell);
        }
    }
    put_rect(svg, out, g, l, row, rows, column, columns);
    for (uint32_t r = row; r < row + rows; r++) {
        for (uint32_t c = column; c < column + columns; c++) {
            g->cells[(size_t)r * COLUMNS + c].tenant = NOBODY;
        }
    }
}

static void draw_cells(const struct weir_sim_svg *svg, FILE *out, struct grid *g,
                       const struct layout *l)
{
    for (uint32_t row = 0; row < g->rows; row++) {
        for (uint32_t column = 0; column < COLUMNS; column++) {
            if (g->cells[(size_t)row * COLUMNS + column].tenant != NOBODY) {
                draw_from(svg, out, g, l, row, column);
            }
        }
    }
}

/* A round step that cuts the time into 5 to 12 parts. */
static double tick_step(double ns)
{
    double step = pow(10, floor(log10(ns / 5)));
    return ns / step > 25 ? step * 5 : ns / step > 12 ? step * 2 : step;
}

static void draw_axes(const struct weir_sim_svg *svg, FILE *out, const struct grid *g,
                      const struct layout *l)
{
    double length = COLUMNS * g->column_ns;
    double step = tick_step(length);
    double factor;
    const char *unit = unit_of((double)g->from_ns + length, &factor);
    for (double at = ceil((double)g->from_ns / step) * step;
         at <= (double)g->from_ns + length * (1 + 1e-9); at += step) {
        double x = LEFT_PX + (at - (double)g->from_ns) / g->column_ns;
        fprintf(out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" class=\"tick\">%.6g %s</text>\n",
                x, TOP_PX, x, l->bottom, x, l->bottom + 14, at * factor, unit);
    }
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%u\" height=\"%.1f\" class=\"frame\"/>"
            "<text x=\"%.1f\" y=\"%.1f\" class=\"side\">SM 0</text>"
            "<text x=\"%.1f\" y=\"%.1f\" class=\"side\">SM %u</text>\n",
            LEFT_PX, TOP_PX, COLUMNS, l->chart_px, LEFT_PX - 6, TOP_PX + 10, LEFT_PX - 6,
            TOP_PX + l->chart_px - 2, svg->sms - 1);
    for (uint32_t i = 0; i < 2; i++) {
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%u\" height=\"%.1f\" class=\"frame\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" class=\"side\">%s</text>\n",
                LEFT_PX, row_top(l, svg->sms + i, svg->sms), COLUMNS, LANE_PX, LEFT_PX - 6,
                row_top(l, svg->sms + i, svg->sms) + 13, i ? "D2H" : "H2D");
    }
}

static void draw_legend(const struct weir_sim_svg *svg, FILE *out, double top)
{
    uint32_t n = svg->load->n_tenants < LEGEND ? svg->load->n_tenants : LEGEND;
    for (uint32_t i = 0; i < n; i++) {
        double x = LEFT_PX + i % 6 * 200.0;
        double y = top + i / 6 * 20.0;
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" class=\"c%u\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" class=\"name\">",
                x, y, i, x + 17, y + 10.5);
        put_name(svg, out, i);
        fprintf(out, " (weight %u)</text>\n", svg->load->tenants[i].params.weight);
    }
    if (svg->load->n_tenants > n) {
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"name\">and %u more</text>\n", LEFT_PX,
                top + (n + 5) / 6 * 20.0 + 10.5, svg->load->n_tenants - n);
    }
}

#define WIDTH_PX (LEFT_PX + COLUMNS + 20)

/* Begin an SVG element; at y if it stands in another. */
static void open_svg(FILE *out, double y, double height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\">\n",
            y, WIDTH_PX, height, WIDTH_PX, height);
}

static void draw_head(const struct weir_sim_svg *svg, FILE *out, const struct grid *g,
                      const char *title, double y, double height)
{
    open_svg(out, y, height);
    fputs("<title>", out);
    put_text(out, title);
    fputs("</title>\n<style>.tick{font-size:11px;text-anchor:middle}.side{font-size:11px;"
          "text-anchor:end}.name{font-size:12px}.head{font-size:15px;font-weight:bold}"
          ".frame{fill:none;stroke:#888}.grid{stroke:#888;stroke-opacity:.35}\n",
          out);
    /* Only tenants that are seen: in cells or in the legend. */
    bool *is_seen = calloc(svg->load->n_tenants + 1u, sizeof *is_seen);
    for (size_t i = 0; is_seen && i < (size_t)g->rows * COLUMNS; i++) {
        if (g->cells[i].tenant != NOBODY) {
            is_seen[g->cells[i].tenant] = true;
        }
    }
    for (uint32_t i = 0; i < svg->load->n_tenants; i++) {
        if (!is_seen || is_seen[i] || i < LEGEND) {
            fprintf(out, ".c%u{fill:", i);
            put_colour(out, i);
            fputs("}\n", out);
        }
    }
    free(is_seen);
    fprintf(out,
            "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>"
            "<text x=\"%.1f\" y=\"24\" class=\"head\">",
            LEFT_PX);
    put_text(out, title);
    fputs("</text>\n", out);
}

static struct layout layout_of(const struct weir_sim_svg *svg, double *ret_height)
{
    uint32_t named = svg->load->n_tenants < LEGEND ? svg->load->n_tenants : LEGEND + 1;
    struct layout l = {.chart_px = fmax(CHART_MIN, fmin(CHART_MAX, svg->sms * ROW_PX))};
    l.row_px = l.chart_px / svg->sms;
    l.lanes_top = TOP_PX + l.chart_px + 10;
    l.bottom = l.lanes_top + 2 * (LANE_PX + 4);
    *ret_height = l.bottom + 34 + (named + 5) / 6 * 20.0 + 10;
    return l;
}

/* One picture; at y if it stands in another. false: out of memory. */
static bool draw_one(const struct weir_sim_svg *svg, FILE *out, const char *title, uint64_t from_ns,
                     uint64_t to_ns, double y)
{
    struct grid g;
    double height;
    const struct layout l = layout_of(svg, &height);
    struct piece *sorted = malloc((svg->n_pieces + 1) * sizeof *sorted);
    size_t *live = malloc((svg->n_pieces + 1) * sizeof *live);
    bool is_good = grid_make(svg, from_ns, to_ns, &g) && sorted && live && !svg->is_short;
    if (is_good) {
        if (svg->n_pieces) {
            memcpy(sorted, svg->pieces, svg->n_pieces * sizeof *sorted);
            qsort(sorted, svg->n_pieces, sizeof *sorted, by_start);
        }
        is_good = fill_grid(&g, sorted, svg->n_pieces, live);
    }
    if (is_good) {
        draw_head(svg, out, &g, title, y, height);
        draw_axes(svg, out, &g, &l);
        draw_cells(svg, out, &g, &l);
        draw_legend(svg, out, l.bottom + 28);
        fputs("</svg>\n", out);
    }
    free(sorted);
    free(live);
    grid_finish(&g);
    return is_good;
}

static enum weir_status drawn(FILE *out, bool is_good)
{
    return !is_good ? WEIR_ERR_NO_MEMORY : fflush(out) != 0 || ferror(out) ? WEIR_ERR_IO : WEIR_OK;
}

enum weir_status weir_sim_svg_draw(const struct weir_sim_svg *svg, FILE *out, const char *title,
                                   uint64_t from_ns, uint64_t to_ns)
{
    if (to_ns <= from_ns) {
        return WEIR_ERR_INVALID;
    }
    return drawn(out, draw_one(svg, out, title, from_ns, to_ns, 0));
}

enum weir_status weir_sim_svg_draw_pair(const struct weir_sim_svg *const svg[2], FILE *out,
                                        const char *const title[2], uint64_t from_ns,
                                        uint64_t to_ns)
{
    double height[2];
    if (to_ns <= from_ns) {
        return WEIR_ERR_INVALID;
    }
    (void)layout_of(svg[0], &height[0]);
    (void)layout_of(svg[1], &height[1]);
    open_svg(out, 0, height[0] + height[1]);
    bool is_good = draw_one(svg[0], out, title[0], from_ns, to_ns, 0) &&
                   draw_one(svg[1], out, title[1], from_ns, to_ns, height[0]);
    fputs("</svg>\n", out);
    return drawn(out, is_good);
}
