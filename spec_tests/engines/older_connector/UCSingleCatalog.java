package io.unitycatalog.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.catalog.CatalogStorageFormat;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.delta.catalog.DeltaCatalog;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Map$;

/**
 * Replaces Unity Catalog's connector for Delta 4.2, which leaves to it what Delta 4.4 does by itself: to stage, register
 * and load a table. Delta's own client commits. A table without `delta.feature.catalogManaged` is not expected.
 */
public final class UCSingleCatalog extends DeltaCatalog {
  private Backend backend;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    backend = new Backend(name, options.get("uri"));
    setDelegateCatalog(backend);
    super.initialize(name, options);
  }

  @Override
  public Table createTable(Identifier table, Column[] columns, Transform[] parts, Map<String, String> properties) {
    JsonNode staged = backend.ask("POST", "/staging-tables", backend.named(table));
    Map<String, String> all = new HashMap<>(properties);
    all.put(TableCatalog.PROP_LOCATION, staged.get("staging_location").asText());
    all.put(TableCatalog.PROP_IS_MANAGED_LOCATION, "true");
    all.put("io.unitycatalog.tableId", staged.get("id").asText());
    return super.createTable(table, columns, parts, all);
  }

  private static final class Backend implements TableCatalog {
    private final ObjectMapper json = new ObjectMapper();
    private final HttpClient http = HttpClient.newHttpClient();
    private final String name;
    private final String uri;

    Backend(String name, String uri) {
      this.name = name;
      this.uri = uri;
    }

    /** The answer; null for 404. */
    JsonNode ask(String method, String path, JsonNode body) {
      HttpRequest request =
          HttpRequest.newBuilder(URI.create(uri + "/api/2.1/unity-catalog" + path))
              .header("content-type", "application/json")
              .method(method, HttpRequest.BodyPublishers.ofString(body == null ? "" : body.toString()))
              .build();
      try {
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() == 404) {
          return null;
        }
        if (answer.statusCode() != 200) {
          throw new IllegalStateException(answer.statusCode() + ": " + answer.body());
        }
        return json.readTree(answer.body());
      } catch (IOException | InterruptedException error) {
        throw new IllegalStateException(error);
      }
    }

    ObjectNode named(Identifier table) {
      ObjectNode body = json.createObjectNode();
      return body.put("name", table.name()).put("catalog_name", name).put("schema_name", table.namespace()[0]);
    }

    private String path(Identifier table) {
      return "/tables/" + name + "." + table.namespace()[0] + "." + table.name();
    }

    @Override
    public void initialize(String name, CaseInsensitiveStringMap options) {}

    @Override
    public String name() {
      return name;
    }

    /** Registers the table, whose version 0 Delta has written. */
    @Override
    public Table createTable(Identifier table, Column[] columns, Transform[] parts, Map<String, String> properties) {
      ObjectNode body = named(table).put("table_type", "MANAGED").put("data_source_format", "DELTA");
      body.put("storage_location", properties.get(TableCatalog.PROP_LOCATION));
      for (Column column : columns) {
        ObjectNode described = body.withArray("columns").addObject();
        described.put("name", column.name()).put("type_text", column.dataType().simpleString());
        described.put("type_name", column.dataType().typeName().toUpperCase()).put("nullable", column.nullable());
        described.put("type_json", column.dataType().json()).put("position", body.get("columns").size() - 1);
      }
      ObjectNode kept = body.putObject("properties");
      properties.forEach((key, value) -> { if (key.contains(".")) kept.put(key, value); });
      ask("POST", "/tables", body);
      return null; // Delta does not use it
    }

    /** Without columns: Delta reads them in the log. */
    @Override
    public Table loadTable(Identifier table) throws NoSuchTableException {
      JsonNode loaded = ask("GET", path(table), null);
      if (loaded == null) {
        throw new NoSuchTableException(table);
      }
      scala.collection.immutable.Map<String, String> properties = Map$.MODULE$.empty();
      for (Iterator<Map.Entry<String, JsonNode>> all = loaded.get("properties").fields(); all.hasNext(); ) {
        Map.Entry<String, JsonNode> entry = all.next();
        properties = properties.updated(entry.getKey(), entry.getValue().asText());
      }
      CatalogStorageFormat none = CatalogStorageFormat.empty();
      Option<URI> location = Option.apply(URI.create(loaded.get("storage_location").asText()));
      try {
        return V1Table.apply(
            made(
                CatalogTable.class,
                new TableIdentifier(table.name(), Option.apply(table.namespace()[0]), Option.apply(name)),
                CatalogTableType.MANAGED(),
                made(
                    CatalogStorageFormat.class, location, none.inputFormat(), none.outputFormat(), none.serde(),
                    none.compressed(), properties),
                new StructType(),
                Option.apply("delta")));
      } catch (ReflectiveOperationException error) {
        throw new IllegalStateException(error);
      }
    }

    /** A Scala value with these arguments and the defaults of its further ones, which differ in versions of Spark. */
    private static <T> T made(Class<T> kind, Object... first) throws ReflectiveOperationException {
      @SuppressWarnings("unchecked")
      Constructor<T> constructor = (Constructor<T>) kind.getConstructors()[0];
      Object[] all = java.util.Arrays.copyOf(first, constructor.getParameterCount());
      for (int number = first.length; number < all.length; number++) {
        all[number] = kind.getMethod("$lessinit$greater$default$" + (number + 1)).invoke(null);
      }
      return constructor.newInstance(all);
    }

    @Override
    public Identifier[] listTables(String[] namespace) {
      return new Identifier[0];
    }

    @Override
    public Table alterTable(Identifier table, TableChange... changes) {
      throw new UnsupportedOperationException("alterTable");
    }

    @Override
    public boolean dropTable(Identifier table) {
      return ask("DELETE", path(table), null) != null;
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
      throw new UnsupportedOperationException("renameTable");
    }
  }
}
