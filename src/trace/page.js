// SPDX-License-Identifier: MIT
// What the page can do with a script: zoom, pan, and say more of what is pointed at. It makes no
// markup from text, and the page is complete without it.
'use strict';

(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  document.documentElement.classList.add('js');

  // ---- text ----

  const grouped = (number, decimals) => {
    const [whole, part] = Math.abs(number).toFixed(decimals).split('.');
    const text = whole.replace(/\B(?=(\d{3})+$)/g, ',') + (part ? '.' + part : '');
    return (number < 0 && Number(text.replace(/,/g, '')) !== 0 ? '−' : '') + text;
  };
  const inUnit = ([name, size, decimals], value) => grouped(value / size, decimals) + ' ' + name;
  const finer = { s: 6, ms: 3, 'µs': 3, ns: 0 };
  const time = (ns) => inUnit([data.time[0], data.time[1], finer[data.time[0]]], ns);
  const size = (bytes) => inUnit(data.size, bytes);
  const significant = (value) =>
    value === null ? 'not finite' : String(Number(value.toPrecision(5))).replace('-', '−');

  // Strings become text nodes, what strong and soft make become elements.
  const fill = (element, ...parts) => {
    element.replaceChildren(...parts.map((part) => {
      if (typeof part === 'string') return document.createTextNode(part);
      const node = document.createElement(part.tag);
      node.textContent = part.text;
      return node;
    }));
  };
  const strong = (text) => ({ tag: 'b', text });
  const soft = (text) => ({ tag: 'span', text });
  const newLine = { tag: 'br', text: '' };

  // ---- timeline ----

  const timeline = () => {
    const view = document.querySelector('.view');
    const svg = view.querySelector('svg');
    const axis = svg.querySelector('.axis');
    const detail = document.querySelector('.detail');
    const blocks = [...svg.querySelectorAll('.a')];
    const actions = data.actions.map(
      ([worker, kind, stage, microBatch, waited, start, end, waiting, copy, host, , awaited, cause],
        index) => ({
        worker, kind: data.kinds[kind], stage, microBatch, waited, start, end, waiting, copy, host,
        awaited, cause: data.causes[cause], index,
      }));
    const least = 640;
    const most = Math.max(1, Math.min(2000, data.span / 20000));
    let zoom = 1, selected = -1, shown = -1;
    const width = () => Math.max(view.clientWidth, least) * zoom;

    const name = (action) => action.kind[0] + ' ' + action.stage +
      (action.kind[2] ? ':' + action.microBatch : '');
    const hint = () => fill(detail, soft('Point at an action, or focus the timeline and use ← → ' +
      '↑ ↓. Wheel, + and − zoom; drag, A and D move; 0 shows the whole step; Enter goes to what ' +
      'was waited for.'));

    const describe = (action) => {
      const stage = data.stages[action.stage];
      const parts = [strong(name(action)), ' ' + action.kind[1] + ', stage ' + action.stage +
        (stage ? ' (' + stage + ')' : '') +
        (action.kind[2] ? ', micro-batch ' + action.microBatch : '') +
        ', worker ' + action.worker + '. ',
      soft('From '), time(action.start), soft(' to '), time(action.end), soft(', took '),
      strong(time(action.end - action.start)), newLine];
      const from = actions[action.awaited], gap = action.start - action.waited;
      if (from) {
        parts.push(soft('Waited '), strong(time(gap)), soft(' for '), strong(name(from)),
          ' on worker ' + from.worker + ' (' + action.cause + ')');
      } else {
        parts.push(soft('Waited for nothing, began '), strong(time(gap)), soft(' later'));
      }
      const causes = [[action.waiting, ' waiting'], [action.copy, ' copy'],
        [action.host, ' host']].filter(([ns]) => ns > 0);
      causes.forEach(([ns, text], i) => parts.push(soft(i ? ', ' : ': '), time(ns), soft(text)));
      fill(detail, ...parts);
    };

    // From the end of what was waited for to the start of what waited.
    const arrow = document.createElementNS(svg.namespaceURI, 'line');
    arrow.setAttribute('class', 'arrow');
    const point = (from, to) => {
      arrow.remove();
      if (!from) return;
      const middle = (block) => Number(block.getAttribute('y')) +
        Number(block.getAttribute('height')) / 2;
      const set = (key, value) => arrow.setAttribute(key, value);
      set('x1', 100 * from.end / data.span + '%');
      set('y1', middle(blocks[from.index]));
      set('x2', 100 * to.start / data.span + '%');
      set('y2', middle(blocks[to.index]));
      svg.append(arrow);
    };

    const show = (index) => {
      if (index === shown) return;
      shown = index;
      for (const block of svg.querySelectorAll('.on, .from')) block.classList.remove('on', 'from');
      const action = actions[index];
      point(action && actions[action.awaited], action);
      if (!action) return hint();
      blocks[index].classList.add('on');
      if (action.awaited >= 0) blocks[action.awaited].classList.add('from');
      describe(action);
    };

    const select = (index) => {
      selected = index;
      show(index);
      if (index < 0) return view.removeAttribute('aria-activedescendant');
      view.setAttribute('aria-activedescendant', blocks[index].id);
      const { start, end } = actions[index], scale = width() / data.span;
      const margin = Math.min(80, view.clientWidth / 4);
      if (start * scale < view.scrollLeft + margin) view.scrollLeft = start * scale - margin;
      const right = Math.min(end, start + view.clientWidth / 2 / scale) * scale;
      if (right > view.scrollLeft + view.clientWidth - margin)
        view.scrollLeft = right - view.clientWidth + margin;
    };

    // Labels that fit, and the axis of what is in view.
    const label = (pixels = width()) => {
      const scale = pixels / data.span;
      blocks.forEach((block, i) => {
        const { kind, microBatch, start, end } = actions[i], room = (end - start) * scale;
        const long = kind[2] ? kind[0] + microBatch : kind[0];
        const text = room >= 7 * long.length + 4 ? long : room >= 11 ? kind[0] : '';
        let node = block.querySelector('text');
        if (!node && text) {
          node = document.createElementNS(svg.namespaceURI, 'text');
          node.setAttribute('x', 3);
          node.setAttribute('y', Math.floor(block.getAttribute('height') / 2) + 4);
          block.append(node);
        }
        if (node && node.textContent !== text) node.textContent = text;
        block.classList.toggle('s', room < 4);
      });
    };
    const ticks = () => {
      const scale = width() / data.span * data.time[1], height = svg.getAttribute('height');
      const wanted = 100 / scale, power = 10 ** Math.floor(Math.log10(wanted));
      const tick = [1, 2, 5, 10].map((step) => step * power).find((step) => step >= wanted);
      const decimals = Math.max(0, -Math.floor(Math.log10(tick) + 1e-9));
      const last = Math.min((view.scrollLeft + view.clientWidth) / scale, data.span / data.time[1]);
      axis.replaceChildren();
      for (let i = Math.floor(view.scrollLeft / scale / tick); i * tick <= last; i++) {
        const line = document.createElementNS(svg.namespaceURI, 'line');
        const text = document.createElementNS(svg.namespaceURI, 'text');
        const x = 100 * i * tick * data.time[1] / data.span + '%';
        for (const [key, value] of Object.entries({ x1: x, x2: x, y1: 0, y2: height }))
          line.setAttribute(key, value);
        for (const [key, value] of Object.entries({ x, y: 12, dx: 4 }))
          text.setAttribute(key, value);
        text.textContent = grouped(i * tick, decimals) + ' ' + data.time[0];
        axis.append(line);
        if (i * tick * scale < width() - 56) axis.append(text);
      }
    };

    // Pixels from the view's left: of the selected action where it is in view, else the middle.
    const anchor = () => {
      const action = actions[selected], scale = width() / data.span;
      const at = action ? (action.start + action.end) / 2 * scale - view.scrollLeft : -1;
      return at >= 0 && at <= view.clientWidth ? at : view.clientWidth / 2;
    };
    // The moment under `at` stays where it is.
    const setZoom = (wanted, at = anchor()) => {
      const moment = (view.scrollLeft + at) / width();
      zoom = Math.min(most, Math.max(1, wanted));
      svg.style.width = 100 * zoom + '%';
      svg.style.minWidth = least * zoom + 'px';
      view.scrollLeft = moment * width() - at;
      label();
      ticks();
    };

    // The nearest in time on the next worker up or down.
    const beside = (direction) => {
      const { worker, start, end } = actions[selected], middle = (start + end) / 2;
      const others = actions.filter((action) => action.worker === worker + direction);
      const distance = (a) => Math.max(a.start - middle, middle - a.end, 0);
      return others.reduce((best, a) => (distance(a) < distance(best) ? a : best), others[0]);
    };
    const move = (step) => {
      const next = actions[selected + step];
      if (next && next.worker === actions[selected].worker) select(selected + step);
    };
    const first = () => {
      const moment = view.scrollLeft / width() * data.span;
      select(Math.max(0, actions.findIndex((action) => action.end >= moment)));
    };
    const keys = {
      ArrowRight: () => (selected < 0 ? first() : move(1)),
      ArrowLeft: () => (selected < 0 ? first() : move(-1)),
      ArrowDown: () => (selected < 0 ? first() : select((beside(1) ?? { index: selected }).index)),
      ArrowUp: () => (selected < 0 ? first() : select((beside(-1) ?? { index: selected }).index)),
      Enter: () => selected >= 0 && actions[selected].awaited >= 0 &&
        select(actions[selected].awaited),
      Escape: () => select(-1),
      '+': () => setZoom(zoom * 1.5), '=': () => setZoom(zoom * 1.5), w: () => setZoom(zoom * 1.5),
      '-': () => setZoom(zoom / 1.5), s: () => setZoom(zoom / 1.5),
      0: () => setZoom(1),
      a: () => { view.scrollLeft -= view.clientWidth / 4; },
      d: () => { view.scrollLeft += view.clientWidth / 4; },
    };

    blocks.forEach((block, i) => {
      const title = block.querySelector('title');
      block.id = 'a' + i;
      block.setAttribute('role', 'img');
      block.setAttribute('aria-label', title.textContent);
      title.remove(); // the detail says the same without delay
    });
    const under = (event) => blocks.indexOf(event.target.closest('.a'));
    svg.addEventListener('pointermove', (event) => {
      const index = under(event);
      show(index >= 0 ? index : selected);
    });
    svg.addEventListener('pointerleave', () => show(selected));
    view.addEventListener('keydown', (event) => {
      const key = keys[event.key] ?? keys[event.key.toLowerCase()];
      if (!key || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      key();
    });
    // Zoomed out as far as it goes, the wheel scrolls the page again.
    view.addEventListener('wheel', (event) => {
      const out = event.deltaY > 0;
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
      if (out ? zoom === 1 : zoom === most) return;
      event.preventDefault();
      setZoom(zoom * 2 ** (-event.deltaY / 300), event.clientX - view.getBoundingClientRect().left);
    }, { passive: false });
    // Fingers pan by themselves.
    view.addEventListener('pointerdown', (event) => {
      if (event.pointerType !== 'mouse' || event.button !== 0) return;
      const from = event.clientX, scrolled = view.scrollLeft, index = under(event);
      let dragged = false;
      const drag = (moved) => {
        dragged ||= Math.abs(moved.clientX - from) > 3;
        if (dragged) view.scrollLeft = scrolled + from - moved.clientX;
      };
      const drop = () => {
        removeEventListener('pointermove', drag);
        if (!dragged) select(index);
      };
      addEventListener('pointermove', drag);
      addEventListener('pointerup', drop, { once: true });
    });
    for (const button of document.querySelectorAll('[data-zoom]')) {
      const factor = Number(button.dataset.zoom);
      button.addEventListener('click', () => setZoom(factor ? zoom * factor : 1));
    }
    view.addEventListener('scroll', () => requestAnimationFrame(ticks));
    addEventListener('beforeprint', () => { setZoom(1); label(least); });
    addEventListener('afterprint', () => label());
    new ResizeObserver(() => setZoom(zoom)).observe(view);
    hint();
  };

  // ---- plots: a line at what is pointed at, and its numbers ----

  const memoryPlot = (worker) => {
    const { lasting, memory } = data.workers[worker];
    const names = ['activations', 'borders', 'portals', 'workspace'];
    return {
      at: (part) => memory.findLast(([ns]) => ns <= part * data.span) ?? memory[0],
      place: (point, part) => part,
      say: (point, part) => {
        const sum = point.slice(1).reduce((a, b) => a + b, lasting);
        return [time(part * data.span) + ': ', strong(size(sum)), soft(' in use'),
          ...names.flatMap((name, i) =>
            (point[i + 1] > 0 ? [soft(', ' + name + ' '), size(point[i + 1])] : []))];
      },
    };
  };
  const curvePlot = (series) => {
    const all = series.flatMap(({ x }) => x);
    const least = Math.min(...all), span = Math.max(...all) - least || 1;
    const near = ({ x }, value) => x.reduce(
      (best, x_k, k) => (Math.abs(x_k - value) < Math.abs(x[best] - value) ? k : best), 0);
    const curves = series.filter(({ x }) => x.length > 0);
    return {
      at: (part) => curves[0]?.x[near(curves[0], least + part * span)],
      place: (value) => (value - least) / span,
      say: (value) => [significant(value) + ': ', ...curves.flatMap((curve, i) => {
        const k = near(curve, value);
        if (i > 0 && curve.x[k] !== value) return [];
        return [soft((i > 0 ? ', ' : '') + curve.name + ' '), strong(significant(curve.y[k]))];
      })],
    };
  };
  const follow = (figure, plot) => {
    const area = figure.querySelector('.area'), output = figure.querySelector('output');
    const line = document.createElement('hr');
    area.addEventListener('pointermove', (event) => {
      const box = area.getBoundingClientRect();
      const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      const found = plot.at(part);
      if (found === undefined) return;
      line.style.left = 100 * plot.place(found, part) + '%';
      area.append(line);
      fill(output, ...plot.say(found, part));
    });
    area.addEventListener('pointerleave', () => {
      line.remove();
      fill(output);
    });
  };

  if (data.actions) timeline();
  for (const figure of document.querySelectorAll('[data-plot]')) {
    const [, kind, number] = figure.dataset.plot.match(/^(.)(\d+)$/);
    follow(figure, kind === 'm' ? memoryPlot(number) : curvePlot(data.charts[number]));
  }
})();
