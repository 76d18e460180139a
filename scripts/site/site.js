// What scrolls can be reached with the keyboard, and each button has a name.
document.addEventListener('DOMContentLoaded', () => {
  for (const box of document.querySelectorAll('.col-md-9 pre, .col-md-9 table')) {
    box.tabIndex = 0;
    for (const inner of box.querySelectorAll('code')) if (box.tagName === 'PRE') inner.style.overflow = 'visible';
  }
  for (const button of document.querySelectorAll('button:not([aria-label])'))
    if (!button.textContent.trim()) button.setAttribute('aria-label', 'Menu');
});
