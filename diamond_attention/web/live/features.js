// In the oldest JavaScript there is, so that a browser without what the page needs can still say so.
(function () {
  function tell(sentence) {
    var place = document.getElementById("trouble");
    if (!place) return document.addEventListener("DOMContentLoaded", function () { tell(sentence); });
    var waiting = document.querySelector("[data-waiting]");
    if (waiting) waiting.hidden = true; // what it waits for does not come
    place.textContent = sentence;
    place.hidden = false;
    place.className = "trouble";
  }

  // By the words with which a page says what it needs.
  var features = {
    modules: ["modules", "noModule" in document.createElement("script")],
    fetch: ["fetch", typeof window.fetch === "function"],
    replacing: ["replacing parts of a page", typeof Element.prototype.replaceChildren === "function"],
    integers: ["whole numbers of 64 bits", typeof window.BigInt === "function"],
    sizes: ["watching sizes", typeof window.ResizeObserver === "function"],
    boxes: ["a canvas with rounded boxes",
      !!(window.CanvasRenderingContext2D && CanvasRenderingContext2D.prototype.roundRect)]
  };
  var own = document.currentScript; // who does not know it has no modules either
  var needs = own ? own.getAttribute("data-needs").split(" ") : ["modules"], missing = [];
  for (var i = 0; i < needs.length; i++) if (!features[needs[i]][1]) missing.push(features[needs[i]][0]);
  if (location.protocol === "file:") {
    tell("A browser lets no page that was opened as a file load its parts. Type “diamond web” and open the address it prints.");
  } else if (missing.length) {
    document.documentElement.setAttribute("data-refused", ""); // so that the page does not begin and say something else
    tell("This browser lacks " + missing.join(", ") + ", which this page needs. Any Chrome, Edge, Firefox or Safari from 2023 on will do.");
  } else {
    window.addEventListener("error", function (event) {
      if (event.target.tagName === "SCRIPT") tell("A part of this page could not be loaded: " + event.target.src + ". Load the page again.");
      else if (event.target === window) tell("Something went wrong on this page: " + event.message + ". Load it again.");
    }, true);
    window.addEventListener("unhandledrejection", function (event) {
      tell("Something went wrong on this page: " + (event.reason && event.reason.message || event.reason) + ". Load it again.");
    });
  }
})();
