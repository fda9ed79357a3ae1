// Decodes label images and traces their outlines beside the page, so that no key press waits for it.

import { traceOutlines } from "./outlines.js";

onmessage = async ({ data: { id, blob } }) => {
  const bitmap = await createImageBitmap(blob, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const colours = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer);
  const labels = colours.map((colour) => colour & 0xffffff); // R + 256 G + 65536 B, as the bytes lie in memory
  const cells = traceOutlines(labels, width, height);
  postMessage({ id, width, height, labels, cells }, [labels.buffer]);
};
