// In the oldest JavaScript there is, so that a browser without what the page needs can still say so.
(function () {
  function tell(sentence) {
    var place = document.getElementById("trouble");
    if (!place) return document.addEventListener("DOMContentLoaded", function () { tell(sentence); });
    place.textContent = sentence;
    place.hidden = false;
    place.className = "trouble";
  }
  window.tellTrouble = tell;

  var needed = {
    "modules": "noModule" in document.createElement("script"),
    "fetch": typeof window.fetch === "function",
    "whole numbers of 64 bits": typeof window.BigInt === "function",
    "watching sizes": typeof window.ResizeObserver === "function",
    "a canvas with rounded boxes": !!(window.CanvasRenderingContext2D && CanvasRenderingContext2D.prototype.roundRect)
  };
  var missing = [];
  for (var name in needed) if (!needed[name]) missing.push(name);
  if (location.protocol === "file:") {
    tell("A browser lets no page that was opened as a file load its parts. Type “diamond web” and open the address it prints.");
  } else if (missing.length) {
    tell("This browser lacks " + missing.join(", ") + ", which this page needs. Any Chrome, Edge, Firefox or Safari from 2023 on will do.");
  } else {
    window.addEventListener("error", function (event) {
      if (event.target && event.target.src) tell("A part of this page could not be loaded: " + event.target.src + ". Load the page again.");
      else tell("Something went wrong on this page: " + event.message + ". Load it again.");
    }, true);
    window.addEventListener("unhandledrejection", function (event) {
      tell("Something went wrong on this page: " + (event.reason && event.reason.message || event.reason) + ". Load it again.");
    });
  }
})();
